"""The costs of launching on a device, from the measurements of its probes.

Must not know how they are measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.compose.device.launching import LaunchCosts
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.samples.measurement import Measurement, round_spread
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.parts import Results

# Where a system's probes were not measured: the middle and the ends of five processes on two cards.
_ASSUMED = {
    "gap": Interval(1.1e-6, 0.9e-6, 1.4e-6),
    "launch": Interval(9e-6, 6e-6, 11e-6),
    "synchronise": Interval(10e-6, 5e-6, 12e-6),
}

# Assumed of all cards, from the graphs of twelve programs on two cards (research/gpu.md).
_GRAPH_GAP, _GRAPH_LAUNCH = Interval(0.55e-6, 0.3e-6, 0.8e-6), Interval(10e-6, 5e-6, 15e-6)


def launch_costs(results: Results) -> LaunchCosts:
    """The costs among ``results``; those that were not measured are assumed as on other cards."""
    measured = {name: of for name in _ASSUMED if (of := _cost(results, name)) is not None}
    known = {**_ASSUMED, **measured}
    return LaunchCosts(
        gap_s=known["gap"],
        launch_s=known["launch"],
        synchronize_s=known["synchronise"],
        graph_gap_s=_GRAPH_GAP,
        graph_launch_s=_GRAPH_LAUNCH,
        assumed=len(measured) < len(_ASSUMED),
    )


def _cost(results: Results, name: str) -> Interval | None:
    measured = results.get(DEVICE_PROBES[name])
    return round_spread(measured) if isinstance(measured, Measurement) else None
