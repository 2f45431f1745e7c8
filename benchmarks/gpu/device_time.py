"""Compare the kernels of single calls with the device time of real steps.

    .venv/bin/python -m benchmarks gpu

Each call was measured in a walk, again and again (hot), and after all of the L2 was written (cold).
A step's kernels follow from these, and from the plan: what the L2 still holds at each call, and the
clock. Constants are fitted on the two folds that a program is not in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.folds import folds_of
from benchmarks.gpu.measured import MeasuredProgram, measured
from benchmarks.gpu.raw import RawProgram, programs
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits, quantile
from benchmarks.study import Results, Run
from bricks.compose.device.cache_state import StepReuses
from bricks.compose.device.kernels import (
    DeviceModel,
    MeasuredStates,
    StepModel,
    UncertaintyModel,
)
from bricks.report.tables import percent
from bricks.system.cards import card_named
from bricks.units.sample import Kernel

_MIB = 1 << 20
# What is tried for each constant of the cache, one constant after the other, twice.
_CACHE_CHOICES: Mapping[str, Sequence[float]] = {
    "capacity": (0.4, 0.45, 0.5, 0.55, 0.6),
    "floor": (0.06, 0.09, 0.12, 0.15, 0.18, 0.24),
    "latency_bytes": (0.5 * _MIB, 1.0 * _MIB, 2.0 * _MIB, 4.0 * _MIB),
    "width": (0.05, 0.1, 0.2),
}
# What is tried for the constants of power: first those of the clock, then that of the time.
_CLOCK_CHOICES: Mapping[str, Sequence[float]] = {
    "joules": tuple(1e-12 * each / 20 for each in range(24, 37)),
    "clock_exponent": (0.3, 0.35, 0.4, 0.45, 0.5),
}
_FELT_CHOICES: Mapping[str, Sequence[float]] = {"felt": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)}
_COVERED = 0.95
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Case:
    """A program in one process; a file may have several processes of a program."""

    session: str
    program: str
    process: int


@dataclass(frozen=True, slots=True)
class Constants:
    """What was fitted on two folds."""

    capacity: float
    floor: float
    latency_bytes: float
    width: float
    joules: float
    clock_exponent: float
    felt: float
    error_factor: float


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of all kernels of a step: real, in a replay, added up in a state, and estimated.

    ``error`` is the relative half width of the interval. ``clock`` is the predicted share of the
    highest clock, ``measured_clock`` that of the driver while steps ran.
    """

    case: Case
    fold: int
    step_s: float
    replay_s: float
    walk_s: float
    hot_s: float
    cold_s: float
    estimate_s: float
    error: float
    clock: float
    measured_clock: float | None
    constants: Constants

    @property
    def ratio(self) -> float:
        """Estimate over real step."""
        return self.estimate_s / self.step_s

    @property
    def holds(self) -> bool:
        """Whether the real step lies inside the interval."""
        return abs(self.step_s / self.estimate_s - 1) <= self.error


@dataclass(frozen=True, slots=True)
class _Program:
    """A program with everything that its estimate follows from, but the constants."""

    case: Case
    raw: RawProgram
    model: StepModel

    @property
    def clock(self) -> float | None:
        """The measured share of the highest clock."""
        highest_hz = self.model.accelerator.clock_hz
        clock_hz = self.raw.clock_hz
        return clock_hz / highest_hz if clock_hz and highest_hz else None

    def sum_s(self, state: Callable[[MeasuredStates], Sequence[Kernel]]) -> float:
        """Seconds of all calls in one state; of the walk where a state was not measured."""
        of = {key: state(each) or each.walk for key, each in self.model.states.items()}
        return sum(kernel.device_s for key in self.model.keys for kernel in of[key])


@cache
def _programs() -> tuple[_Program, ...]:
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for raw in programs():
        if raw.step:
            case = Case(raw.session, raw.name, numbers[raw.session, raw.name])
            numbers[raw.session, raw.name] += 1
            found.append(_Program(case, raw, _model(raw, measured(raw))))
    return tuple(found)


def _model(raw: RawProgram, of: MeasuredProgram) -> StepModel:
    keys = [occurrence.brick for occurrence in of.plan.occurrences]
    states = {key: MeasuredStates.of(of.measured[key]) for key in dict.fromkeys(keys)}
    bricks = of.decomposition.bricks
    used = StepReuses.of(of.plan, bricks, [bool(states[key].walk) for key in keys])
    return StepModel(keys, states, used, bricks, card_named(raw.card).accelerator)


def cases() -> list[Case]:
    """All programs with a real step, in all processes."""
    return [program.case for program in _programs()]


def run(case: Case, run: Run) -> Row:
    """The row of a program, with the constants of the folds that it is not in."""
    program = next(each for each in _programs() if each.case == case)
    fold = _folds()[case.program]
    model = _fitted(fold)
    step = program.model.durations(model)
    replay_s = sum(kernel.device_s for call in program.raw.replayed for kernel in call)
    return Row(
        case=case,
        fold=fold,
        step_s=digits(program.raw.step_device_s, 6),
        replay_s=digits(replay_s, 6),
        walk_s=digits(program.sum_s(lambda of: of.walk), 6),
        hot_s=digits(program.sum_s(lambda of: of.hot), 6),
        cold_s=digits(program.sum_s(lambda of: of.cold), 6),
        estimate_s=digits(step.device_s, 6),
        error=digits(step.error, 4),
        clock=digits(step.clock_share, 4),
        measured_clock=program.clock and digits(program.clock, 4),
        constants=_constants(model),
    )


def _constants(model: DeviceModel) -> Constants:
    of, power = model.cache, model.power
    return Constants(
        of.capacity, of.floor, of.latency_bytes, of.width, power.joules, power.clock_exponent,
        power.felt, digits(model.uncertainty.factor, 3),
    )  # fmt: skip


@cache
def _folds() -> Mapping[str, int]:
    return folds_of(program.case.program for program in _programs())


def fitted_without(program: str) -> DeviceModel:
    """The model fitted on the folds that ``program`` is not in."""
    return _fitted(_folds()[program])


@cache
def _fitted(fold: int) -> DeviceModel:
    """The model fitted on all programs that are not in ``fold``."""
    known = [program for program in _programs() if _folds()[program.case.program] != fold]
    clocked = [program for program in known if program.clock is not None]
    model = _best(DeviceModel(), _with_cache, _CACHE_CHOICES, lambda of: _error(known, of))
    model = _best(model, _with_power, _CLOCK_CHOICES, lambda of: _clock_error(clocked, of))
    model = _best(model, _with_power, _FELT_CHOICES, lambda of: _error(known, of))
    return replace(model, uncertainty=_uncertainty(known, model))


def _with_cache(model: DeviceModel, name: str, value: float) -> DeviceModel:
    return replace(model, cache=replace(model.cache, **{name: value}))


def _with_power(model: DeviceModel, name: str, value: float) -> DeviceModel:
    return replace(model, power=replace(model.power, **{name: value}))


def _best(
    model: DeviceModel,
    changed: Callable[[DeviceModel, str, float], DeviceModel],
    choices: Mapping[str, Sequence[float]],
    error: Callable[[DeviceModel], float],
) -> DeviceModel:
    """The model with the best of ``choices``, one constant after the other, twice."""
    for name, values in [*choices.items()] * 2:
        model = min((changed(model, name, value) for value in values), key=error)
    return model


def _error(known: Sequence[_Program], model: DeviceModel) -> float:
    """The mean of |ln(estimate / real)|."""
    return sum(abs(_log_ratio(program, model)) for program in known) / len(known)


def _log_ratio(program: _Program, model: DeviceModel) -> float:
    return math.log(program.model.durations(model).device_s / program.raw.step_device_s)


def _clock_error(known: Sequence[_Program], model: DeviceModel) -> float:
    """The mean difference between the predicted and the measured share of the clock."""
    shares = [
        (program.model.durations(model).clock_share, program.clock or 1.0) for program in known
    ]
    return sum(abs(predicted - real) for predicted, real in shares) / len(shares)


def _uncertainty(known: Sequence[_Program], model: DeviceModel) -> UncertaintyModel:
    """The factor with which intervals hold for 95 % of the ``known`` programs."""
    own = model.uncertainty
    needed = [
        own.factor * abs(_log_ratio(program, model)) / program.model.durations(model).error
        for program in known
    ]
    return replace(own, factor=quantile(needed, _COVERED))


def parts(results: Results[Row]) -> dict[str, str]:
    """Errors of all programs, the worst ones, the constants, and the check of the cache's form."""
    return {
        "device_time": paragraphs(_errors(results.rows), _worst(results.rows)),
        "device_constants": _constants_table(results.rows),
    }


def _errors(rows: Sequence[Row]) -> str:
    selections = {
        "all": rows,
        "H100": [row for row in rows if row.case.session.startswith("h100")],
        "H200": [row for row in rows if row.case.session.startswith("h200")],
    }
    lines = [
        _summary(f"estimate, {name}", of, lambda row: row.ratio) for name, of in selections.items()
    ]
    for name, ratio in _SUMS.items():
        lines.append(_summary(name, rows, ratio, holds=False))
    head = ["", "steps", "median error", "95th percentile", "worst", "inside the interval"]
    return table(head, lines)


_SUMS: Mapping[str, Callable[[Row], float]] = {
    "sum of walks": lambda row: row.walk_s / row.step_s,
    "sum of hot calls": lambda row: row.hot_s / row.step_s,
    "sum of cold calls": lambda row: row.cold_s / row.step_s,
    "a replay of all calls": lambda row: row.replay_s / row.step_s,
}


def _summary(
    name: str, rows: Sequence[Row], ratio: Callable[[Row], float], holds: bool = True
) -> list[str]:
    of = Ratios(tuple(map(ratio, rows)))
    errors = [percent(each, 1) for each in (of.median_error, of.p95_error, of.worst_error)]
    inside = percent(sum(row.holds for row in rows) / len(rows), 0) if holds else ""
    return [name, str(len(rows)), *errors, inside]


def _worst(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(row.ratio - 1))[:SHOWN]
    lines = [
        [
            row.case.program, row.case.session, f"{row.step_s * 1e3:.3f}", f"{row.ratio:.3f}",
            f"± {percent(row.error, 1)}", f"{row.walk_s / row.step_s:.3f}",
            f"{row.hot_s / row.step_s:.3f}", f"{row.cold_s / row.step_s:.3f}",
        ]
        for row in ordered
    ]  # fmt: skip
    head = ["program", "file", "step, ms", "estimate / step", "interval", "walk", "hot", "cold"]
    return table(head, lines, "ll")


def _constants_table(rows: Sequence[Row]) -> str:
    found = {row.fold: row.constants for row in rows}
    lines = [
        [
            str(fold + 1), f"{of.capacity:.2f}", f"{of.width:.2f}", f"{of.floor:.2f}",
            f"{of.latency_bytes / _MIB:.1f}", f"{of.joules * 1e12:.2f}",
            f"{of.clock_exponent:.2f}", f"{of.felt:.1f}", f"{of.error_factor:.2f}",
        ]
        for fold, of in sorted(found.items())
    ]  # fmt: skip
    head = [
        "fold", "capacity", "width", "floor", "latency, MiB", "pJ an operation", "clock", "felt",
        "interval",
    ]  # fmt: skip
    return table(head, lines)


BENCHMARKS = (Derived("device_time", PAGE, Row, cases, run, parts),)
