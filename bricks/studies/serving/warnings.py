"""Warnings about the metrics of a scenario, a line each. Must not compute metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving

if TYPE_CHECKING:
    from bricks.studies.serving.service import ServiceTimes
    from bricks.units.interval import Interval

# Above this share of the capacity, 1 % of the rate changes percentiles by tens of per cent.
NEAR_SATURATION = 0.9


def warnings_of(
    times: ServiceTimes,
    load: ScenarioLoad,
    serving: Serving,
    rate_qps: float | None,
    capacity: Interval,
) -> tuple[str, ...]:
    """Warnings for the mean rate ``rate_qps`` of samples; None if samples have no rate."""
    lines = [] if rate_qps is None else [*_of_rate(rate_qps, serving, capacity)]
    if serving.instances > 1 and times.busy is None:
        lines.append(
            "how instances slow each other down was not measured here: they are assumed not to"
        )
    if load.kind is ScenarioKind.SERVER and times.batches[0].idle_penalty is None:
        lines.append(
            "how much longer runs take after idling was not measured here: at low rates, latencies"
            " are longer than this"
        )
    return tuple(lines)


def _of_rate(rate_qps: float, serving: Serving, capacity: Interval) -> Iterator[str]:
    share = rate_qps / capacity.value
    if share >= 1:
        what = "the queue grows without end" if serving.max_queue is None else "drops others"
        yield (
            f"{rate_qps:.4g} queries/s are above saturation: the server can answer"
            f" {capacity.value:.4g} a second, and {what}"
        )
    elif rate_qps >= capacity.low:
        yield (
            f"{rate_qps:.4g} queries/s may be above saturation, which lies between"
            f" {capacity.low:.4g} and {capacity.high:.4g}: percentiles have no upper end"
        )
    elif share >= NEAR_SATURATION:
        yield (
            f"{rate_qps:.4g} queries/s are {100 * share:.0f} % of what the server can answer:"
            " percentiles tell the order of magnitude alone"
        )
