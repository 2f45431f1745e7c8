"""Predictions for a system of which only a few bricks are measured, next to measurements.

    .venv/bin/bricks measure ZOO --threads 1      (and so on: a target for each row; see the page)
    .venv/bin/python -m benchmarks transfer --cache cache/transfer

Takes a cache in which the zoo is measured on several targets. For one target after another, only
the bricks count that ``bricks probe`` would measure: the others are predicted from these and from
the other targets, and compared with the measurements. Nothing is timed. Families are split into two
halves, as in prediction.py: constants were chosen on the first half, with these targets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.markdown import table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import BricksError, Store, Target
from bricks.predict.features import BrickFeatures
from bricks.predict.planner import Planner, Posterior
from bricks.predict.prediction import Prediction
from bricks.predict.predictor import learn
from bricks.predict.transfer import SourceTarget, expected_s, learn_transfer
from bricks.report.tables import number, percent
from bricks.samples.statistics import NORMAL_95
from bricks.session.latency_model import source_target
from bricks.session.measured_target import MeasuredTarget
from bricks.zoo import entries

TARGETS = (
    "mxnet, 1 thread, optimisation all",
    "onnxruntime, 1 thread, optimisation all",
    "onnxruntime, 1 thread, optimisation basic",
    "onnxruntime, 2 threads, optimisation all",
    "onnxruntime, 2 threads, optimisation extended",
)
FIRST, SECOND = 0, 1  # halves of the families
COUNTS, USUAL = (48, 96, 192), 96


@dataclass(frozen=True, slots=True)
class Case:
    """A target that counts as new, a half of the families, and a number of measured bricks."""

    target: str
    half: int
    probes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Predictions of a half's bricks and models: errors, and the share inside their interval.

    ``errors`` has |predicted / measured - 1| of each model. None: not recorded.
    """

    bricks: int
    brick_error: float
    models: int
    errors: tuple[float, ...]
    inside: float
    geomean_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Predictions with other targets and without; running all probes once takes ``once_s``."""

    case: Case
    once_s: float
    transfer: Outcome
    separate: Outcome


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """A target on which the zoo is measured; ``counts`` has occurrences of bricks by model."""

    target: Target
    latency_s: Mapping[str, float]
    features: Mapping[str, BrickFeatures]
    families: Mapping[str, set[str]]
    counts: Mapping[str, Mapping[str, int]]
    source: SourceTarget

    @property
    def name(self) -> str:
        """The target's name on the page."""
        runtime = self.target.runtime
        threads = "1 thread" if runtime.threads == 1 else f"{runtime.threads} threads"
        return f"{runtime.backend}, {threads}, optimisation {runtime.optimization}"


class Learned(Protocol):
    """A predictor; ``bias`` is the log error that all of its predictions may have in common."""

    @property
    def bias(self) -> float:
        """The standard deviation of that error."""

    def predict(self, features: Mapping[str, BrickFeatures]) -> Mapping[str, Prediction]:
        """The latency of each brick."""


def cases() -> list[Case]:
    """Each target, for both halves and all numbers of probes."""
    return [
        Case(name, half, count) for name in TARGETS for half in (FIRST, SECOND) for count in COUNTS
    ]


@cache
def _targets(folder: Path) -> Mapping[str, KnownTarget]:
    """The targets of a cache on which the zoo is measured, by name."""
    with Store.open(folder, make=False) as store:
        found = [_target(store, target) for target in store.systems.targets()]
    return {known.name: known for known in found if known is not None}


def _target(store: Store, target: Target) -> KnownTarget | None:
    measured = MeasuredTarget(store, target.key, "executed")
    source = source_target(measured)
    if source is None:
        return None
    known = measured.latencies()
    counts = {
        plan.model: dict(plan.counts)
        for plan, _ in store.plans.all(target.key, "executed")
        if plan.counts.keys() <= known.seconds.keys()
    }
    features = measured.features(list(known.seconds))
    return KnownTarget(target, known.seconds, features, known.families, counts, source)


def halves() -> dict[str, int]:
    """The half that each model's family is in."""
    family = {entry.name: entry.family for entry in entries()}
    numbers = {name: i % 2 for i, name in enumerate(sorted(set(family.values())))}
    return {model: numbers[name] for model, name in family.items()}


def run(case: Case, run: Run) -> Row:
    """Predict a target of which only probes are known."""
    targets = _targets(run.folder)
    if case.target not in targets:
        raise BricksError(f"{run.folder} has no measurements of {case.target}: measure the zoo")
    known, half = targets[case.target], halves()
    others = [other.source for other in targets.values() if other is not known]
    counts = {name: of for name, of in known.counts.items() if half.get(name) == case.half}
    features = {key: known.features[key] for key in sorted(set().union(*counts.values()))}
    posteriors = {key: Posterior(s) for key, s in expected_s(features, others).items()}
    kernels = frozenset[str]().union(*(other.kernels for other in others))
    probes = Planner(counts, features, posteriors, kernels).choose(0.001, max_count=case.probes)
    measured = {key: known.latency_s[key] for key in probes}
    transfer = learn_transfer(features, measured, known.families, others)
    separate = learn(features, measured, known.families)
    assert transfer is not None and separate is not None, "too few probes"
    rest = {key: of for key, of in features.items() if key not in measured}
    return Row(
        case,
        digits(sum(measured.values()), 5),
        _outcome(known, counts, measured, rest, transfer),
        _outcome(known, counts, measured, rest, separate),
    )


def _outcome(
    known: KnownTarget,
    counts: Mapping[str, Mapping[str, int]],
    measured: Mapping[str, float],
    rest: Mapping[str, BrickFeatures],
    predictor: Learned,
) -> Outcome:
    predicted = predictor.predict(rest)
    off = [abs(math.log(p.latency_s / known.latency_s[key])) for key, p in predicted.items()]
    models = [
        _model(of, known.latency_s, measured, predicted, predictor.bias) for of in counts.values()
    ]
    ratios = Ratios(tuple(ratio for ratio, _ in models))
    return Outcome(
        len(off),
        digits(float(np.median(np.expm1(off))), 5),
        len(models),
        tuple(digits(error, 5) for error in ratios.errors),
        digits(float(np.mean([inside for _, inside in models])), 5),
        digits(ratios.geomean, 5),
    )


def _model(
    counts: Mapping[str, int],
    latency_s: Mapping[str, float],
    measured: Mapping[str, float],
    predicted: Mapping[str, Prediction],
    bias: float,
) -> tuple[float, bool]:
    """The ratio of a model's sum to that of measured bricks, and whether its interval holds it."""
    truth_s = sum(n * latency_s[key] for key, n in counts.items())
    part = [(n, predicted[key]) for key, n in counts.items() if key in predicted]
    part_s = sum(n * p.latency_s for n, p in part)
    sum_s = part_s + sum(n * measured[key] for key, n in counts.items() if key in measured)
    variance = sum((n * p.latency_s * p.log_sd) ** 2 for n, p in part) + (bias * part_s) ** 2
    sd = math.hypot(math.sqrt(variance) / sum_s, 0.01)
    return sum_s / truth_s, abs(math.log(sum_s / truth_s)) <= NORMAL_95 * sd


_HEAD = (
    "the new target", "bricks measured", "bricks: median error", "models", "median error",
    "95th percentile", "geometric mean", "inside the interval", "without other targets: bricks",
    "models", "95th percentile", "geometric mean",
)  # fmt: skip


def listed(results: Results[Row]) -> str:
    """A row for each target, number of probes and half of the families; the page has fewer."""
    tables = [
        f"## {name} half of the families\n\n{_table(_lines(_some(results, half)))}"
        for half, name in enumerate(("First", "Second"))
    ]
    return "\n\n".join(tables)


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of the second half, and the figures of the text."""
    usual = _some(results, SECOND, USUAL)
    lines = _lines(usual)
    lines += [_together("all", count, _some(results, SECOND, count)) for count in COUNTS]
    lines.append(_together("all, first half", USUAL, _some(results, FIRST, USUAL)))
    return {
        "transfer_date": results.about.date,
        "transfer_system": results.about.system,
        "with_targets": _in_words(_pooled([row.transfer for row in usual])),
        "without_targets": _in_words(_pooled([row.separate for row in usual])),
        "transfer": _table(lines),
        "once": f"{1e3 * max(row.once_s for row in usual):.0f} ms",
    }


def _some(results: Results[Row], half: int, probes: int | None = None) -> list[Row]:
    return [
        row for row in results.rows if row.case.half == half and probes in (None, row.case.probes)
    ]


def _in_words(outcome: Outcome) -> str:
    error, mean = percent(float(np.median(outcome.errors))), outcome.geomean_ratio
    return error if mean is None else f"{error} (geometric mean of ratios {number(mean, 3)})"


def _lines(rows: Iterable[Row]) -> list[list[str]]:
    return [_cells(row.case.target, row.case.probes, row.transfer, row.separate) for row in rows]


def _together(name: str, probes: int, rows: Sequence[Row]) -> list[str]:
    both = _pooled([row.transfer for row in rows]), _pooled([row.separate for row in rows])
    return _cells(name, probes, *both)


def _pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """All models together; brick errors are means over the targets."""
    weights = [each.models for each in outcomes]
    logs = [math.log(each.geomean_ratio) for each in outcomes if each.geomean_ratio is not None]
    complete = len(logs) == len(outcomes)
    return Outcome(
        sum(each.bricks for each in outcomes),
        float(np.mean([each.brick_error for each in outcomes])),
        sum(weights),
        tuple(error for each in outcomes for error in each.errors),
        float(np.average([each.inside for each in outcomes], weights=weights)),
        math.exp(np.average(logs, weights=weights)) if complete else None,
    )


def _cells(name: str, probes: int, transfer: Outcome, separate: Outcome) -> list[str]:
    def errors(outcome: Outcome) -> list[str]:
        quantiles = (np.quantile(outcome.errors, share) for share in (0.5, 0.95))
        return [*(percent(float(q)) for q in quantiles), number(outcome.geomean_ratio, 3)]

    return [
        name, str(probes), percent(transfer.brick_error), str(transfer.models), *errors(transfer),
        percent(transfer.inside, 0), percent(separate.brick_error), *errors(separate),
    ]  # fmt: skip


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A table without the columns that no row has a figure for."""
    known = [any(cell != number(None) for cell in cells) for cells in zip(*lines, strict=True)]
    head, *rows = (
        [cell for cell, there in zip(cells, known, strict=True) if there]
        for cells in (_HEAD, *lines)
    )
    return table(head, rows)


BENCHMARKS = (Benchmark("transfer", "accuracy.md", Row, cases, run, parts, listed),)
