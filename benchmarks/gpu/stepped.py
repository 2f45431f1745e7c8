"""Programs on GPUs with their plans, phases and kernels; answers about them with intervals.

Kernels are those of walks, as long as ``device_time.py`` estimates for all of them, with constants
of the two folds that a program is not in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.gpu import device_time
from benchmarks.gpu.device_time import Case
from benchmarks.gpu.folds import folds_of
from benchmarks.gpu.measured import MeasuredProgram, measured
from benchmarks.gpu.raw import Nulls, RawProgram, Turn, programs, read
from benchmarks.ratios import Ratios, digits
from bricks.compose.device.host_lane import TINY_S, PhaseTimes
from bricks.compose.device.launching import LaunchCosts
from bricks.graph.call import FORWARD, INFERENCE
from bricks.report.tables import percent
from bricks.samples.statistics import median
from bricks.units.interval import Interval
from bricks.units.sample import Kernel


@dataclass(frozen=True, slots=True)
class Answer:
    """A measured time, and its estimate with an interval; seconds of a step."""

    real_s: float
    estimate_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, real_s: float, estimate: Interval) -> Answer:
        """An answer with few digits."""
        known = (real_s, estimate.value, estimate.low, estimate.high)
        return cls(*(digits(seconds, 5) for seconds in known))

    @property
    def ratio(self) -> float:
        """Estimate over real step."""
        return self.estimate_s / self.real_s

    @property
    def holds(self) -> bool:
        """Whether the real step lies inside the interval."""
        return self.low_s <= self.real_s <= self.high_s


@dataclass(frozen=True)  # without slots, as raw programs
class Stepped:
    """A program with its plan; ``phases`` are the names of its calls' phases."""

    case: Case
    raw: RawProgram
    measured: MeasuredProgram

    @property
    def phases(self) -> Sequence[str]:
        """The phase of each call."""
        return phases_of(self.raw)

    def kernels(self, total_s: float) -> list[list[Kernel]]:
        """The kernels of each call in walks, scaled to ``total_s`` in all."""
        known = self.measured.measured
        walks = {key: of.kernels for key, of in known.items()}
        calls = [walks[occurrence.brick] for occurrence in self.measured.plan.occurrences]
        factor = total_s / sum(kernel.device_s for call in calls for kernel in call)
        return [[Kernel(k.name, factor * k.device_s) for k in call] for call in calls]

    def phase_times(self, turns: Sequence[Turn]) -> list[PhaseTimes]:
        """Each phase in these turns: its calls one by one, and its part of real steps."""
        counts = Counter(self.phases)
        replayed = [of.replay_phase_s for of in turns]
        steps = phases_in_steps(turns)
        slowness = median([of.tiny_s for of in turns]) / TINY_S
        return [
            PhaseTimes(
                phase, counts[phase], median([of[name] for of in replayed]), steps[name], slowness
            )
            for name, phase in zip(steps, dict.fromkeys(self.phases), strict=True)
        ]


def phases_of(raw: RawProgram) -> Sequence[str]:
    """The phase of each call of a program; that of inference has costs of its own."""
    own = [call.phase for call in raw.calls]
    return own if len(set(own)) > 1 else [INFERENCE if of == FORWARD else of for of in own]


def phases_in_steps(turns: Sequence[Turn]) -> Mapping[str, float]:
    """The host's seconds for each phase of a step, as much in all as steps take it one by one."""
    phases = {
        phase: median([of.phase_host_s[phase] for of in turns]) for phase in turns[0].phase_host_s
    }
    whole_s = median([host_s for of in turns for host_s in of.host_s])
    return {phase: of * whole_s / sum(phases.values()) for phase, of in phases.items()}


@cache
def stepped() -> tuple[Stepped, ...]:
    """All programs with a real step, in the order of their cases."""
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for raw in programs():
        if raw.step:
            case = Case(raw.session, raw.name, numbers[raw.session, raw.name])
            numbers[raw.session, raw.name] += 1
            if raw.turns or raw.graph_s:
                found.append(Stepped(case, raw, measured(raw)))
    return tuple(found)


def folds() -> Mapping[str, int]:
    """The fold of each program with a real step."""
    return folds_of(raw.name for raw in programs() if raw.step)


def stepped_of(case: Case) -> Stepped:
    """The program of a case."""
    return next(of for of in stepped() if of.case == case)


@cache
def device_rows(results: Path) -> Mapping[Case, device_time.Row]:
    """The estimated device time of each program, from the folder of results."""
    (benchmark,) = device_time.BENCHMARKS
    return {row.case: row for row in benchmark.kept(results)[0].rows}


@cache
def launch_costs(session: str) -> LaunchCosts:
    """The costs of launching, by the nulls of a file's processes."""

    def spread(of: Callable[[Nulls], Sequence[float]]) -> Interval:
        medians = [median(of(nulls)) for nulls in read(session).nulls]
        return Interval(median(medians), min(medians), max(medians))

    return LaunchCosts(
        gap_s=spread(lambda of: of.gap_s),
        launch_s=spread(lambda of: of.launch_to_start_s),
        synchronize_s=spread(lambda of: of.sync_s),
    )


HEAD = ["", "steps", "median error", "95th percentile", "worst", "inside the interval"]


def summary(name: str, answers: Sequence[Answer]) -> list[str]:
    """A row of a table below ``HEAD``."""
    of = Ratios(tuple(answer.ratio for answer in answers))
    errors = [percent(each, 1) for each in (of.median_error, of.p95_error, of.worst_error)]
    inside = percent(sum(answer.holds for answer in answers) / len(answers), 0)
    return [name, str(len(answers)), *errors, inside]
