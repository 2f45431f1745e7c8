"""The host's seconds for each call of a step, from those of calls one by one.

Steps of the system itself tell what a phase takes beyond its calls, if they were measured; else
constants that were learned from real steps of other programs do.

Calls that are timed one by one are made from Python. In a step, modules and the engine of automatic
differentiation make them, and each costs more or less. Must not know kernels, nor how calls were
timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.latencies import phase_overheads
from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER
from bricks.samples.call_overhead import probes_of
from bricks.samples.measurement import Measurement

if TYPE_CHECKING:
    from bricks.compose.basis import Results
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
        overheads, sums_s = phase_overheads(plan, results), _sums(phases, called_s)
        whole_s = {name: sum_s + overheads[name].value for name, sum_s in sums_s.items()}
        factors = {name: max(0.0, whole_s[name]) / s if s else 0.0 for name, s in sums_s.items()}
        calls_s = [factors[name] * own_s for name, own_s in zip(phases, called_s, strict=True)]
        half_s = sum(of.half_width for of in overheads.values())
        return HostLane(calls_s, half_s / sum(calls_s) if sum(calls_s) else 0.0)
    return HostLane(PUBLISHED_HOSTS.in_step(phases, called_s), PUBLISHED_HOSTS.error)


def _sums(phases: Sequence[str], called_s: Sequence[float]) -> Mapping[str, float]:
    sums_s: dict[str, float] = dict.fromkeys(phases, 0.0)
    for name, own_s in zip(phases, called_s, strict=True):
        sums_s[name] += own_s
    return sums_s


# Rounds of weighted least squares, which approach the least sum of absolute errors; relative errors
# below this are weighted as this one.
_ROUNDS, _LEAST_ERROR = 30, 0.02
_COVERED = 0.95


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """The host's seconds for a phase of a step: in a real step, and the sum of its calls.

    ``slowness`` is the seconds of a tiny call on the host at that time, relative to
    :data:`TINY_S`.
    """

    phase: str
    calls: int
    called_s: float
    step_s: float
    slowness: float = 1.0


# A tiny call of PyTorch on the host whose slowness is 1.
TINY_S = 11e-6


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """A phase's time in a step: ``share`` of its calls' one by one, plus ``call_s`` for each.

    The seconds are those of a host whose slowness is 1.
    """

    share: float = 1.0
    call_s: float = 0.0

    def step_s(self, calls: int, called_s: float, slowness: float = 1.0) -> float:
        """Seconds of a phase whose ``calls`` take ``called_s`` one by one; at least 0."""
        return max(0.0, self.share * called_s + slowness * self.call_s * calls)


@dataclass(frozen=True, slots=True)
class HostCosts:
    """The cost of each phase, by name; ``error`` is the relative half width of a step's interval.

    Phases without a cost take what their calls take.
    """

    phases: Mapping[str, PhaseCost]
    error: float = 0.0

    @classmethod
    def learned(cls, programs: Sequence[Sequence[PhaseTimes]]) -> HostCosts:
        """The costs that fit several programs best; the error is that of programs left out."""
        costs = cls(_fitted(programs))
        errors = [
            costs._relative_error(_fitted([*programs[:i], *programs[i + 1 :]]), of)
            for i, of in enumerate(programs)
        ]
        return cls(costs.phases, float(np.quantile(errors, _COVERED)) if errors else 0.0)

    def in_step(
        self, phases: Sequence[str], called_s: Sequence[float], slowness: float = 1.0
    ) -> tuple[float, ...]:
        """Seconds of each call in a step, in proportion to its seconds one by one.

        ``phases`` and ``called_s`` have an entry for each call.
        """
        calls, sums_s = dict[str, int](), dict[str, float]()
        for phase, own_s in zip(phases, called_s, strict=True):
            calls[phase] = calls.get(phase, 0) + 1
            sums_s[phase] = sums_s.get(phase, 0.0) + own_s
        factors = {
            phase: self.of(phase).step_s(calls[phase], sum_s, slowness) / sum_s if sum_s else 0.0
            for phase, sum_s in sums_s.items()
        }
        return tuple(factors[phase] * own_s for phase, own_s in zip(phases, called_s, strict=True))

    def of(self, phase: str) -> PhaseCost:
        """The cost of a phase."""
        return self.phases.get(phase, PhaseCost())

    @staticmethod
    def _relative_error(phases: Mapping[str, PhaseCost], times: Sequence[PhaseTimes]) -> float:
        costs = HostCosts(phases)
        found_s = sum(costs.of(t.phase).step_s(t.calls, t.called_s, t.slowness) for t in times)
        real_s = sum(t.step_s for t in times)
        return abs(real_s / found_s - 1) if found_s else 1.0


# Learned from 26 programs on an H200 (research/gpu.md): the middle of three folds.
PUBLISHED_HOSTS = HostCosts(
    {
        INFERENCE: PhaseCost(1.13, -3.3e-6),
        FORWARD: PhaseCost(1.44, -7.7e-6),
        BACKWARD: PhaseCost(0.68, 6.6e-6),
        OPTIMIZER: PhaseCost(1.81, -4.4e-6),
    },
    error=0.26,
)


def _fitted(programs: Iterable[Sequence[PhaseTimes]]) -> dict[str, PhaseCost]:
    by_phase = dict[str, list[PhaseTimes]]()
    for of in programs:
        for times in of:
            by_phase.setdefault(times.phase, []).append(times)
    return {phase: _fitted_phase(of) for phase, of in by_phase.items()}


def _fitted_phase(times: Sequence[PhaseTimes]) -> PhaseCost:
    """The cost with the least sum of absolute relative errors."""
    real_s = np.array([of.step_s for of in times])
    rows = np.array([[of.called_s, of.slowness * of.calls] for of in times])
    relative, weights = rows / real_s[:, None], np.ones(len(times))
    for _ in range(_ROUNDS):
        found = np.linalg.lstsq(relative * weights[:, None], weights, rcond=None)[0]
        errors = np.abs(relative @ found - 1.0)
        weights = 1.0 / np.sqrt(np.maximum(errors, _LEAST_ERROR))
    share, call_s = (float(number) for number in found)
    return PhaseCost(share, call_s)
