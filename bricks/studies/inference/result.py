"""Estimates of whole models next to runs of them, and the errors over a zoo; plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TYPE_CHECKING, ClassVar

from bricks.compose.estimate import Estimate, IncompleteEstimate, provenance_facts
from bricks.samples.measurement import Measurement, Sampling, round_spread
from bricks.samples.statistics import median
from bricks.studies.study import Checked

if TYPE_CHECKING:
    from bricks.compose.basis import Results
    from bricks.decompose.plan import Plan
    from bricks.session.agreement import Agreement
    from bricks.system import Target
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """One model's estimate and its whole-model latency on the same target, in seconds.

    ``advice`` is a sentence on how to narrow a wide interval, None unless requested.
    """

    FACTS: ClassVar = (
        "model", ("plan.kind", "kind"), ("plan.nodes", "nodes"), "bricks", "new_bricks",
        ("measured_s", "measured_latency_s", "measured_low_s", "measured_high_s"),
        ("estimate.latency_s", "estimate_s", "low_s", "high_s"), "ratio", "coverage",
        *provenance_facts("estimate.provenance"),
        ("estimate.uncertainty", "uncertainty"), "advice", "error",
    )  # fmt: skip

    model: str
    plan: Plan
    new_bricks: int
    measured_s: Interval
    estimate: Estimate
    advice: str | None = None

    @property
    def bricks(self) -> int:
        """The number of bricks of the model."""
        return len(self.plan.keys)

    @property
    def coverage(self) -> float:
        """The share of its occurrences whose brick is measured."""
        return self.estimate.coverage

    @property
    def checked(self) -> Checked:
        """The estimate next to the median run."""
        return Checked(self.estimate.latency_s, self.measured_s.value)

    @property
    def ratio(self) -> float:
        """Estimate over measured latency."""
        return self.checked.ratio


@dataclass(frozen=True, slots=True)
class ComparisonFailure:
    """A model for which there is no comparison, and why, in one line."""

    LIKE: ClassVar = ModelComparison

    model: str
    error: str
    plan: Plan | None = None
    new_bricks: int | None = None
    coverage: float | None = None

    @property
    def bricks(self) -> int | None:
        """The number of bricks of the model; None if it could not be decomposed."""
        return None if self.plan is None else len(self.plan.keys)


@dataclass(frozen=True, slots=True)
class Summary:
    """A comparison over a zoo. Errors are ``|ratio - 1|``; times are seconds.

    ``noise_floor`` is the median of ``|repeat / first - 1|`` of whole models measured twice in the
    same interleaved session: in its odd and in its even rounds. ``speedup_latency`` is the paper's
    formula: the sum of whole-model latencies over the sum of unique brick latencies.
    ``speedup_wall`` compares the total wall time of measuring the models with that of measuring the
    bricks, from reading to the last sample. Figures without any model behind them are None.
    """

    models: int
    occurrences: int
    bricks: int
    median_abs_error: float | None
    p95_abs_error: float | None
    max_abs_error: float | None
    geomean_ratio: float | None
    interval_hit_rate: float | None
    noise_floor: float | None
    speedup_latency: float | None
    speedup_wall: float | None
    bricks_wall_s: float
    models_wall_s: float


@dataclass(frozen=True, slots=True)
class Comparison(Sampling):
    """Estimates and whole-model runs on one target; ``new_models`` models were run for it.

    ``agreements`` say whether other runtimes that ran the models here compute the same.
    """

    FACTS: ClassVar = (
        ("target.system", "system"), ("target.runtime", "runtime"), "granularity", "workers",
        "copies", ("rows", "models"), "summary", "agreements",
    )  # fmt: skip

    target: Target
    granularity: str
    workers: int
    rows: tuple[ModelComparison | ComparisonFailure, ...]
    summary: Summary
    new_models: int
    agreements: tuple[Agreement, ...] = ()

    @property
    def copies(self) -> int:
        """Copies of each model that ran at once on the host."""
        return self.target.runtime.copies

    @property
    def compared(self) -> tuple[ModelComparison, ...]:
        """The models that were compared."""
        return tuple(row for row in self.rows if isinstance(row, ModelComparison))

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each other model."""
        return tuple(row.error for row in self.rows if isinstance(row, ComparisonFailure))


def summarise(
    rows: Sequence[ModelComparison],
    results: Results,
    *,
    decompose_s: Mapping[str, float],
    read_s: Mapping[str, float],
) -> Summary:
    """The summary of ``rows``; ``results`` by key holds their bricks' and models' samples.

    ``decompose_s`` and ``read_s`` are wall seconds by model digest. Predicted bricks took none.
    """
    bricks = {key for row in rows for key in row.plan.keys}
    predicted = {s.brick for row in rows for s in row.estimate.shares if s.predicted}
    wholes = {row.plan.digest: _measurement(results, row.plan.digest) for row in rows}
    checked = [row.checked for row in rows]
    errors = sorted(comparison.error for comparison in checked)
    parts = [_measurement(results, key) for key in bricks - predicted]
    unique_s = sum(round_spread(m).value for m in parts)
    whole_s = sum(round_spread(m).value for m in wholes.values())
    reading_s = sum((read_s[digest] for digest in wholes), 0.0)
    bricks_wall_s = (
        reading_s + sum(decompose_s[digest] for digest in wholes) + sum(m.wall_s for m in parts)
    )
    models_wall_s = reading_s + sum(m.wall_s for m in wholes.values())
    repeats = [r for m in wholes.values() if (r := repeat_error(m)) is not None]
    hits = [comparison.inside for comparison in checked]
    return Summary(
        models=len(rows),
        occurrences=sum(len(row.plan.occurrences) for row in rows),
        bricks=len(bricks),
        median_abs_error=median(errors) if errors else None,
        p95_abs_error=errors[math.ceil(0.95 * len(errors)) - 1] if errors else None,
        max_abs_error=errors[-1] if errors else None,
        geomean_ratio=geometric_mean(row.ratio for row in rows) if rows else None,
        interval_hit_rate=sum(hits) / len(hits) if hits else None,
        noise_floor=median(repeats) if repeats else None,
        speedup_latency=whole_s / unique_s if unique_s else None,
        speedup_wall=models_wall_s / bricks_wall_s if rows else None,
        bricks_wall_s=bricks_wall_s,
        models_wall_s=models_wall_s,
    )


def repeat_error(measurement: Measurement) -> float | None:
    """|repeat / first - 1| of the medians of every second round; None with a single round.

    Disturbed rounds do not count.
    """
    rounds = [r.latency_s for r in measurement.walked if not r.disturbed]
    if len(rounds) < 2:
        return None
    return abs(median(rounds[1::2]) / median(rounds[0::2]) - 1)


def incomplete(model: str, plan: Plan, estimate: IncompleteEstimate, new: int) -> ComparisonFailure:
    """Why an incomplete estimate cannot be compared."""
    error = f"{model}: no estimate without {estimate.lacks}"
    return ComparisonFailure(model, error, plan, new, estimate.coverage)


def _measurement(results: Results, key: str) -> Measurement:
    result = results[key]
    if not isinstance(result, Measurement):
        raise TypeError(f"{key} was not measured: {result.reason}")
    return result
