"""Predict the host's time of steps whose calls were never measured.

    .venv/bin/python -m benchmarks gpu

For each family of programs, the host's times for calls are learned from all other families on the
same card. No brick of the family is among them, even if others have it too. What a phase costs
beyond its calls is learned from programs of the folds that a program is not in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.lanes import learned_costs
from benchmarks.gpu.stepped import HEAD, Answer, folds, phases_of, summary
from benchmarks.gpu.unmeasured import ALL, Case, StepProgram, family_of, step_programs
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Results, Run
from bricks.compose.device.host_lane import HostCosts
from bricks.compose.device.recompose import HOST_SHARE
from bricks.compose.recomposition_error import OTHER_HOST_CALLS_SHARE
from bricks.decompose.plan import Brick
from bricks.predict.kernels.learned_kernels import HostTimes
from bricks.report.tables import percent
from bricks.samples.measurement import Measurement
from bricks.units.interval import Interval

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class HostRow:
    """The host's seconds of a step: real, by operators, and by one median over ``all_calls``.

    ``measured`` is the ratio of estimate and step if the calls themselves were measured.
    """

    case: Case
    family: str
    by_operator: Answer
    all_calls: float
    measured: float


def cases() -> list[Case]:
    """All programs with real steps."""
    return [Case(of.session, of.raw.name, of.process, ALL) for of in step_programs()]


def run(case: Case, run: Run) -> HostRow:
    """The host's time of a program's step, with what other families tell."""
    (program,) = (
        of for of in step_programs()
        if (of.session, of.raw.name, of.process) == (case.session, case.program, case.process)
    )  # fmt: skip
    family, costs = family_of(case.program), learned_costs(folds()[case.program])
    known, any_s = learned_without(program.raw.card, family)
    keys = [occurrence.brick for occurrence in program.of.plan.occurrences]
    bricks = program.of.decomposition.bricks
    calls = {key: known.of(brick) for key, brick in bricks.items()}
    real_s = median(program.raw.host_s)
    called_s = program.raw.issued_s or program.raw.synchronised_s
    estimate_s = _step_s(program, costs, [calls[key].value for key in keys])
    half_s = estimate_s * _error(bricks, calls, Counter(keys), costs)
    return HostRow(
        case,
        family,
        Answer.of(real_s, Interval.around(estimate_s, half_s)),
        digits(_step_s(program, costs, [any_s] * len(keys)) / real_s, 5),
        digits(_step_s(program, costs, called_s) / real_s, 5),
    )


@cache
def learned_without(card: str, family: str) -> tuple[HostTimes, float]:
    """The host's times on ``card`` from all programs but those of ``family``; the median of all."""
    own = {k for of in step_programs() if family_of(of.raw.name) == family for k in of.counts}
    bricks, results = dict[str, Brick](), dict[str, Measurement]()
    for of in step_programs():
        if of.raw.card == card and family_of(of.raw.name) != family:
            bricks |= {k: each for k, each in of.of.decomposition.bricks.items() if k not in own}
            results |= of.of.measured
    known = [results[key].latency_s for key in bricks.keys() & results.keys()]
    return HostTimes.learn(bricks, results), median(known)


def _step_s(program: StepProgram, costs: HostCosts, called_s: Sequence[float]) -> float:
    return sum(costs.in_step(phases_of(program.raw), called_s))


def _error(
    bricks: Mapping[str, Brick],
    calls: Mapping[str, Interval],
    counts: Mapping[str, int],
    costs: HostCosts,
) -> float:
    """The relative error of an answer about another host: of calls, phases, and the host itself."""
    half_s = dict[str, float]()
    for key, seconds in calls.items():
        operator = "+".join(bricks[key].operators)
        half_s[operator] = half_s.get(operator, 0.0) + counts[key] * seconds.half_width
    total_s = sum(counts[key] * seconds.value for key, seconds in calls.items())
    own = math.hypot(*half_s.values()) / total_s
    return min(0.95, math.hypot(own, costs.error, HOST_SHARE, OTHER_HOST_CALLS_SHARE))


def parts(results: Results[HostRow]) -> dict[str, str]:
    """Errors by card, and the worst programs."""
    return {"unmeasured_host": paragraphs(_errors(results.rows), _worst(results.rows))}


def _errors(rows: Sequence[HostRow]) -> str:
    return table(HEAD, [line for card in ("H200", "H100") for line in _of_card(card, rows)])


def _of_card(card: str, rows: Sequence[HostRow]) -> Iterator[list[str]]:
    own = [row for row in rows if row.case.session.startswith(card.lower())]
    yield summary(f"{card}, by operator", [row.by_operator for row in own])
    others = {
        "one median of all calls": [row.all_calls for row in own],
        "calls measured": [row.measured for row in own],
    }
    for name, ratios in others.items():
        of = Ratios(tuple(ratios))
        errors = [percent(each, 1) for each in (of.median_error, of.p95_error, of.worst_error)]
        yield [f"{card}, {name}", str(len(own)), *errors, ""]


def _worst(rows: Sequence[HostRow]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(math.log(row.by_operator.ratio)))[:_SHOWN]
    lines = [
        [
            row.case.program, row.case.session, f"{row.by_operator.real_s * 1e3:.2f}",
            f"{row.by_operator.ratio:.2f}", f"{row.all_calls:.2f}", f"{row.measured:.2f}",
        ]
        for row in ordered
    ]  # fmt: skip
    head = ["program", "file", "host, ms", "by operator", "one median", "calls measured"]
    return table(head, lines, "ll")


BENCHMARKS = (Derived("unmeasured_host", PAGE, HostRow, cases, run, parts),)
