"""Predict calls that were never measured, and add them up to the device time of real steps.

    .venv/bin/python -m benchmarks gpu

For each family of programs, kernels are learned from all other families and from the sweep of
single calls on the H200. No brick of the family is among them, even if others have it too. For the
H100, nothing but its published peaks is used: neither its calls nor its steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.measured import MeasuredProgram, measured
from benchmarks.gpu.raw import RawProgram, programs, read
from benchmarks.gpu.swept import swept_bricks
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits, quantile
from benchmarks.study import Results, Run
from bricks.decompose.plan import Brick
from bricks.predict.kernels.kernel_predictor import (
    KernelPrediction,
    KernelPredictor,
    total_s,
    transferred,
)
from bricks.report.tables import percent
from bricks.samples.measurement import Measurement
from bricks.system.cards import card_named

LEARNED, OTHER = "h200", "h100"
_COVERED, _SHOWN = 0.95, 12
# A program belongs to the first family whose word its name has.
_FAMILIES: Mapping[str, str] = {
    "lm1b": "llama", "lm300m": "llama", "llama": "llama", "resnet": "resnet", "vit": "vit",
    "convnext": "convnext", "mobilenet": "mobilenet", "densenet": "densenet", "gpt2": "gpt2",
    "bert": "encoder", "encoder": "encoder", "t5": "t5", "conformer": "conformer",
    "wav2vec2": "wav2vec2", "dlrm": "dlrm", "wide_and_deep": "wide and deep", "wide": "wide",
    "unet": "unet", "diffusion": "unet", "gcn": "gcn", "probe": "probe",
}  # fmt: skip
# Families on which lengths of covariances were found (bricks/predict/kernels/kernel_process.py).
_TUNED = frozenset({"llama", "resnet", "vit", "gpt2", "dlrm", "unet", "wide", "probe"})
ALL, MEASURED = "never measured", f"measured on the {LEARNED.upper()}"


@dataclass(frozen=True, slots=True)
class Case:
    """A program in one process; ``calls`` says whether its calls were measured on the H200."""

    session: str
    program: str
    process: int
    calls: str


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of all kernels of a step, real and estimated, with the ends of the interval."""

    case: Case
    family: str
    step_s: float
    walk_s: float
    estimate_s: float
    low_s: float
    high_s: float

    @property
    def ratio(self) -> float:
        """Estimate over real step."""
        return self.estimate_s / self.step_s

    @property
    def holds(self) -> bool:
        """Whether the real step lies inside the interval."""
        return self.low_s <= self.step_s <= self.high_s


def family_of(program: str) -> str:
    """The family of a program by its name; KeyError for one that has none."""
    return _FAMILIES[next(word for word in _FAMILIES if word in program)]


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A program in one process, its calls and what they took."""

    session: str
    process: int
    raw: RawProgram
    of: MeasuredProgram

    @property
    def counts(self) -> Counter[str]:
        """How often each brick occurs."""
        return Counter(occurrence.brick for occurrence in self.of.plan.occurrences)


@cache
def step_programs() -> tuple[StepProgram, ...]:
    """All programs with a real step, in each process."""
    numbers: Counter[tuple[str, str]] = Counter()
    found = []
    for raw in programs():
        if raw.step:
            key = raw.session, raw.name
            found.append(StepProgram(raw.session, numbers[key], raw, measured(raw)))
            numbers[key] += 1
    return tuple(found)


@cache
def _sweep() -> tuple[Mapping[str, Brick], Mapping[str, Measurement]]:
    every = [one for session in ("h200-turns",) for one in swept_bricks(read(session).sweep)]
    bricks = {one.brick.key: one.brick for one in every}
    return bricks, {one.brick.key: one.measurement for one in every}


@cache
def learned_without(family: str) -> KernelPredictor:
    """The predictor learned on the H200 from all programs but those of ``family``."""
    bricks, results = dict(_sweep()[0]), dict(_sweep()[1])
    for program in step_programs():
        if program.raw.card == LEARNED and family_of(program.raw.name) != family:
            bricks |= program.of.decomposition.bricks
            results |= program.of.measured
    own = {
        key for each in step_programs() if family_of(each.raw.name) == family for key in each.counts
    }
    known = {key: brick for key, brick in bricks.items() if key not in own}
    return KernelPredictor.learn(known, results, card_named(LEARNED).accelerator)


def cases() -> list[Case]:
    """All programs whose calls are predicted; those on the H100 also with calls of the H200."""
    named = [(each.session, each.raw.name, each.process) for each in step_programs()]
    both = [Case(*of, MEASURED) for of in named if of[0].startswith(OTHER)]
    return [*(Case(*of, ALL) for of in named), *both]


def run(case: Case, run: Run) -> Row:
    """The row of a program; its interval is as wide as those of other families need to be."""
    row = _rows()[case]
    width = _widening(row.family, case.calls)
    low_s, high_s = (
        row.estimate_s * (end / row.estimate_s) ** width for end in (row.low_s, row.high_s)
    )
    seconds = row.step_s, row.walk_s, row.estimate_s, low_s, high_s
    return Row(case, row.family, *(digits(own, 6) for own in seconds))


@cache
def _widening(family: str, calls: str) -> float:
    """The power of the interval's ends with which it holds for 95 % of the other families."""
    others = [r for c, r in _rows().items() if r.family != family and c.calls == calls]
    return quantile([_needed(row) for row in others], _COVERED)


def _needed(row: Row) -> float:
    end = row.high_s if row.step_s > row.estimate_s else row.low_s
    return math.log(row.step_s / row.estimate_s) / math.log(end / row.estimate_s)


@cache
def _rows() -> Mapping[Case, Row]:
    rows: dict[Case, Row] = {}
    for family in sorted(set(_FAMILIES.values())):
        own = [each for each in step_programs() if family_of(each.raw.name) == family]
        predictor = learned_without(family)
        for program in own:
            rows |= {row.case: row for row in _estimated(program, predictor)}
        learned_without.cache_clear()
    return rows


def _estimated(program: StepProgram, predictor: KernelPredictor) -> Iterable[Row]:
    card = card_named(program.raw.card)
    predicted = predictor.predictions(program.of.decomposition.bricks, card)
    yield _row(program, ALL, predicted)
    if program.raw.card == OTHER:
        known = _h200(program.raw.name)
        results = {key: known[key] for key in predicted if key in known}
        bricks = program.of.decomposition.bricks
        there = transferred(bricks, results, card_named(LEARNED), card)
        yield _row(program, MEASURED, predicted | there)


def _h200(program: str) -> Mapping[str, Measurement]:
    """What the calls of a program took on the H200."""
    own = [p for p in step_programs() if p.raw.card == LEARNED and p.raw.name == program]
    return {key: result for each in own for key, result in each.of.measured.items()}


def _row(program: StepProgram, calls: str, predicted: Mapping[str, KernelPrediction]) -> Row:
    total = total_s([(predicted[key], times) for key, times in program.counts.items()], None)
    case = Case(program.session, program.raw.name, program.process, calls)
    family, step_s = family_of(program.raw.name), program.raw.step_device_s
    return Row(case, family, step_s, _walk_s(program), total.value, total.low, total.high)


def _walk_s(program: StepProgram) -> float:
    walks = {
        key: sum(kernel.device_s for kernel in of.kernels_by_displaced.get(None, ()))
        for key, of in program.of.measured.items()
    }
    return sum(times * walks.get(key, 0.0) for key, times in program.counts.items())


def parts(results: Results[Row]) -> dict[str, str]:
    """Errors by kind of prediction, and the worst programs."""
    return {"unmeasured": paragraphs(_errors(results.rows), _worst(results.rows))}


def _errors(rows: Sequence[Row]) -> str:
    learned = [row for row in rows if row.case.session.startswith(LEARNED)]
    selections = {
        "H200, calls never measured": learned,
        "of these, families without part in any constant": [
            row for row in learned if row.family not in _TUNED
        ],
        "H100, calls measured on the H200": [r for r in rows if r.case.calls == MEASURED],
        "H100, calls measured on neither": [
            r for r in rows if r.case.session.startswith(OTHER) and r.case.calls == ALL
        ],
    }
    head = ["", "steps", "median error", "95th percentile", "worst", "inside the interval"]
    return table(head, [_summary(name, of) for name, of in selections.items()])


def _summary(name: str, rows: Sequence[Row]) -> list[str]:
    of = Ratios(tuple(row.ratio for row in rows))
    errors = [percent(each, 1) for each in (of.median_error, of.p95_error, of.worst_error)]
    return [name, str(len(rows)), *errors, percent(sum(r.holds for r in rows) / len(rows), 0)]


def _worst(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(math.log(row.ratio)))[:_SHOWN]
    lines = [
        [
            row.case.program, row.case.session, row.case.calls, f"{row.step_s * 1e3:.3f}",
            f"{row.ratio:.2f}", f"{row.low_s / row.step_s:.2f} to {row.high_s / row.step_s:.2f}",
        ]
        for row in ordered
    ]  # fmt: skip
    head = ["program", "file", "calls", "step, ms", "estimate / step", "interval / step"]
    return table(head, lines, "lll")


BENCHMARKS = (Derived("unmeasured", PAGE, Row, cases, run, parts),)
