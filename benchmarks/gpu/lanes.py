"""Compare steps on two lanes, host and device, with real steps: eager, pipelined, as CUDA graphs.

    .venv/bin/python -m benchmarks gpu

Kernels are those of walks, as long as ``device_time.py`` estimates for all of them, with constants
of the two folds that a program is not in. The host's time for calls is known in two ways:
*calibrated* with real steps of the same process, in the other half of its turns; or *learned* from
other programs, from a replay of the program's calls alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache

from benchmarks.gpu import device_time
from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.device_time import Case
from benchmarks.gpu.raw import Turn
from benchmarks.gpu.stepped import (
    HEAD,
    Answer,
    Stepped,
    device_rows,
    folds,
    launch_costs,
    phases_in_steps,
    stepped,
    stepped_of,
    summary,
)
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits, quantile
from benchmarks.study import Results, Run
from bricks.compose.device.host_lane import TINY_S, HostCosts, PhaseCost
from bricks.compose.device.launching import DeviceRun, RunMode, device_run
from bricks.report.tables import percent
from bricks.samples.statistics import median
from bricks.units.interval import Interval

_COVERED = 0.95
# Turns of one half calibrate, those of the other are reported.
_HALVES = 2
# A step that takes that many times as long as its kernels is limited by the host.
_FAR = 1.5


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A program's steps, one by one and pipelined, from calibrated and from learned host times.

    ``called`` is the ratio of estimate and step if calls take what they take one by one.
    ``repeated`` are the steps of the other half of the turns: how well they repeat. ``costs`` are
    those that were learned from other programs.
    """

    case: Case
    fold: int
    limited_by: str
    host_s: float
    device_s: float
    calibrated: Answer
    calibrated_pipelined: Answer
    learned: Answer
    learned_pipelined: Answer
    called: float
    repeated: float
    repeated_pipelined: float
    costs: HostCosts


def cases() -> list[Case]:
    """The programs whose steps and replays were measured in turns."""
    return [of.case for of in stepped() if of.raw.turns]


def run(case: Case, run: Run) -> LaneRow:
    """The steps of a program, with costs and errors of the folds that it is not in."""
    of, fold = stepped_of(case), folds()[case.program]
    device = device_rows(run.options.results)[case]
    pipelined = _pipelined(fold)
    known, reported = of.raw.turns[::_HALVES], of.raw.turns[1::_HALVES]
    calibrated = _Lanes(of, device, _step_host_s(of, known), _repetition_error(fold), pipelined)
    costs = learned_costs(fold)
    called = _called_s(of, reported)
    slowness = median([turn.tiny_s for turn in reported]) / TINY_S
    learned = _Lanes(of, device, costs.in_step(of.phases, called, slowness), costs.error, pipelined)
    one_by_one = _Lanes(of, device, called, 0.0, pipelined)
    eager = calibrated.run(RunMode.EAGER)
    return LaneRow(
        case,
        fold,
        eager.limited_by,
        digits(eager.host_s, 5),
        digits(eager.device_s, 5),
        calibrated.answer(RunMode.EAGER, reported),
        calibrated.answer(RunMode.PIPELINED, reported),
        learned.answer(RunMode.EAGER, reported),
        learned.answer(RunMode.PIPELINED, reported),
        digits(one_by_one.answer(RunMode.EAGER, reported).ratio, 5),
        digits(_real_s(RunMode.EAGER, known) / _real_s(RunMode.EAGER, reported), 5),
        digits(_real_s(RunMode.PIPELINED, known) / _real_s(RunMode.PIPELINED, reported), 5),
        _short(costs),
    )


def _short(costs: HostCosts) -> HostCosts:
    """The costs with digits that all processors agree on."""
    phases = {
        name: PhaseCost(*(digits(value, 8) for value in astuple(of)))
        for name, of in costs.phases.items()
    }
    return HostCosts(phases, digits(costs.error, 8))


def _real_s(mode: RunMode, turns: Sequence[Turn]) -> float:
    if mode is RunMode.PIPELINED:
        return median([of.pipelined_s for of in turns])
    return median([latency_s for of in turns for latency_s in of.latency_s])


@dataclass(frozen=True, slots=True)
class _Lanes:
    """A program with the host's seconds for each call, and their relative error."""

    of: Stepped
    device: device_time.Row
    host_s: Sequence[float]
    host_error: float
    pipelined: _Pipelined

    def run(self, mode: RunMode, host: float = 1.0, device: float = 1.0) -> DeviceRun:
        """A run in which host and device take so many times as long."""
        kernels = self.of.kernels(device * self.device.estimate_s)
        host_s = [host * own_s for own_s in self.host_s]
        if mode is RunMode.PIPELINED:
            host_s = [self.pipelined.share * own_s for own_s in host_s]
        return device_run(
            self.of.measured.plan, host_s, kernels, launch_costs(self.of.case.session), mode
        )

    def answer(self, mode: RunMode, turns: Sequence[Turn]) -> Answer:
        """The step and its interval, both of whose ends have both lanes at their ends."""
        own = self.host_error
        host_error = own if mode is RunMode.EAGER else math.hypot(own, self.pipelined.error)
        ends_s = [
            self.run(mode, 1 + sign * host_error, 1 + sign * self.device.error).step_s
            for sign in (-1, 1)
        ]
        return Answer.of(_real_s(mode, turns), Interval(self.run(mode).step_s, *ends_s))


def _called_s(of: Stepped, turns: Sequence[Turn]) -> list[float]:
    """Each call one by one, as long in all of a phase as in these turns."""
    sums = defaultdict[str, float](float)
    for call, own_s in zip(of.raw.calls, of.raw.issued_s, strict=True):
        sums[call.phase] += own_s
    phases = {phase: median([turn.replay_phase_s[phase] for turn in turns]) for phase in sums}
    return [
        own_s * phases[call.phase] / sums[call.phase]
        for call, own_s in zip(of.raw.calls, of.raw.issued_s, strict=True)
    ]


def _step_host_s(of: Stepped, turns: Sequence[Turn]) -> list[float]:
    """Each call in real steps: each phase takes what it takes in these turns."""
    called_s, steps = _called_s(of, turns), phases_in_steps(turns)
    sums = defaultdict[str, float](float)
    for call, own_s in zip(of.raw.calls, called_s, strict=True):
        sums[call.phase] += own_s
    return [
        own_s * steps[call.phase] / sums[call.phase]
        for call, own_s in zip(of.raw.calls, called_s, strict=True)
    ]


def _others(fold: int) -> Iterator[Stepped]:
    return (of for of in stepped() if of.raw.turns and folds()[of.case.program] != fold)


@cache
def learned_costs(fold: int) -> HostCosts:
    """The costs that fit the programs of the other folds."""
    return HostCosts.learned([of.phase_times(of.raw.turns) for of in _others(fold)])


@dataclass(frozen=True, slots=True)
class _Pipelined:
    """The host's seconds of a pipelined step relative to a single one, and their error."""

    share: float
    error: float


@cache
def _pipelined(fold: int) -> _Pipelined:
    """What steps of the other folds show that the host limits."""
    shares = [
        median([of.pipelined_s for of in turns]) / median([s for of in turns for s in of.host_s])
        for of in _others(fold)
        if (turns := of.raw.turns) and _host_limits(of)
    ]
    share = median(shares)
    return _Pipelined(share, quantile([abs(each / share - 1) for each in shares], _COVERED))


def _host_limits(of: Stepped) -> bool:
    """Whether a step takes far longer than its kernels."""
    return median([turn.pipelined_s for turn in of.raw.turns]) > _FAR * of.raw.step_device_s


@cache
def _repetition_error(fold: int) -> float:
    """How far the host's time differs between halves of the turns, in 95 % of the other folds."""
    errors = []
    for of in _others(fold):
        one, other = (
            median([host_s for turn in of.raw.turns[half::_HALVES] for host_s in turn.host_s])
            for half in range(_HALVES)
        )
        errors.append(abs(one / other - 1))
    return quantile(errors, _COVERED)


def parts(results: Results[LaneRow]) -> dict[str, str]:
    """Errors of all programs, the worst ones, and what was learned of the host."""
    return {
        "lanes": paragraphs(_errors(results.rows), _all(results.rows)),
        "host_costs": _costs_table(results.rows),
    }


def _errors(rows: Sequence[LaneRow]) -> str:
    eager, pipelined = ("one by one", "pipelined")
    lines = [
        summary(f"{eager}, host calibrated", [row.calibrated for row in rows]),
        summary(f"{pipelined}, host calibrated", [row.calibrated_pipelined for row in rows]),
        summary(f"{eager}, host learned", [row.learned for row in rows]),
        summary(f"{pipelined}, host learned", [row.learned_pipelined for row in rows]),
    ]
    ratios_of = {
        f"{eager}, calls as one by one": [row.called for row in rows],
        f"{eager}, real steps of the other turns": [row.repeated for row in rows],
        f"{pipelined}, real steps of the other turns": [row.repeated_pipelined for row in rows],
    }
    for name, ratios in ratios_of.items():
        of = Ratios(tuple(ratios))
        errors = [percent(each, 1) for each in (of.median_error, of.p95_error, of.worst_error)]
        lines.append([name, str(len(rows)), *errors, ""])
    return table(HEAD, lines)


def _all(rows: Sequence[LaneRow]) -> str:
    lines = [
        [
            row.case.program, row.limited_by, f"{row.host_s * 1e3:.2f}",
            f"{row.device_s * 1e3:.2f}", f"{row.calibrated.real_s * 1e3:.2f}",
            f"{row.calibrated.ratio:.3f}", f"{row.learned.ratio:.3f}",
            f"{row.calibrated_pipelined.real_s * 1e3:.2f}",
            f"{row.calibrated_pipelined.ratio:.3f}", f"{row.learned_pipelined.ratio:.3f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = [
        "program", "limited by", "host, ms", "device, ms", "step, ms", "calibrated", "learned",
        "pipelined, ms", "calibrated", "learned",
    ]  # fmt: skip
    return table(head, lines, "ll")


def _costs_table(rows: Sequence[LaneRow]) -> str:
    found = {row.fold: row.costs for row in rows}
    lines = [
        [
            str(fold + 1), phase, f"{of.share:.2f}", f"{of.call_s * 1e6:.1f}",
            f"± {percent(costs.error, 0)}",
        ]
        for fold, costs in sorted(found.items())
        for phase, of in costs.phases.items()
    ]  # fmt: skip
    head = ["fold", "phase", "share of calls", "each call, µs", "interval"]
    return table(head, lines, "rl")


BENCHMARKS = (Derived("lanes", PAGE, LaneRow, cases, run, parts),)
