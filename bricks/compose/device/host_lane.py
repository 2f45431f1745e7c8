"""The host's seconds for each call of a step, from those of calls one by one.

Steps of the system itself tell what a phase takes beyond its calls, if they were measured; else
constants that were learned from real steps of other programs do. Must not know kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.call_overhead import phase_overheads
from bricks.compose.device.host_cost import PUBLISHED_HOSTS
from bricks.samples.call_overhead import probes_of
from bricks.samples.measurement import Measurement

if TYPE_CHECKING:
    from bricks.compose.parts import Results
    from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class HostLane:
    """Seconds of each call of a step; ``error`` is the relative half width of their sum."""

    calls_s: Sequence[float]
    error: float


def host_lane(plan: Plan, called_s: Sequence[float], results: Results) -> HostLane:
    """The calls of a step of ``plan``, which take ``called_s`` one by one.

    Calls of a plan without phases take that in a step too.
    """
    phases = [name for name, of in plan.memory.overheads for _ in range(of.occurrences)]
    if not phases:
        return HostLane(called_s, 0.0)
    if all(isinstance(results.get(key), Measurement) for key in probes_of(plan)):
        return _probed(plan, phases, called_s, results)
    return HostLane(PUBLISHED_HOSTS.in_step(phases, called_s), PUBLISHED_HOSTS.error)


def _probed(
    plan: Plan, phases: Sequence[str], called_s: Sequence[float], results: Results
) -> HostLane:
    """The calls with the overhead of their phases, in proportion to their own seconds."""
    overheads, sums_s = phase_overheads(plan, results), _sums(phases, called_s)
    whole_s = {name: sum_s + overheads[name].value for name, sum_s in sums_s.items()}
    factors = {name: max(0.0, whole_s[name]) / s if s else 0.0 for name, s in sums_s.items()}
    calls_s = [factors[name] * own_s for name, own_s in zip(phases, called_s, strict=True)]
    half_s = sum(of.half_width for of in overheads.values())
    return HostLane(calls_s, half_s / sum(calls_s) if sum(calls_s) else 0.0)


def _sums(phases: Sequence[str], called_s: Sequence[float]) -> Mapping[str, float]:
    sums_s: dict[str, float] = dict.fromkeys(phases, 0.0)
    for name, own_s in zip(phases, called_s, strict=True):
        sums_s[name] += own_s
    return sums_s
