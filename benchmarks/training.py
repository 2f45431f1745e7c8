"""How accurate are predicted trainings? Time to an accuracy, predicted next to measured.

    .venv/bin/python -m benchmarks training --minutes 30

Each workload of the zoo that can be trained is trained from five seeds, with one thread. Epochs are
kept too, so that an interrupted training goes on. Run nothing else meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import BricksError, TrainingFailure, TrainingOptions, TrainingResult, train
from bricks.report.tables import number, percent, seconds
from bricks.samples.statistics import median
from bricks.zoo import trainings

UNTIL, SEEDS, MAX_EPOCHS = 0.95, 5, 50

# The median ratio of all workloads should be this close to one.
BOUND = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """A workload of the zoo, with a number of threads."""

    workload: str
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Seed:
    """A training from one seed; times in milliseconds."""

    seed: int
    steps: int
    epochs: int
    accuracy: float
    reached: bool
    step_ms: float
    loading_ms: float
    evaluation_ms: float
    measured_ms: float
    predicted_ms: float | None
    low_ms: float | None
    high_ms: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A workload from several seeds; ``step_ms`` is None where steps have no estimate."""

    case: Case
    step_ms: float | None
    loading_ms: float
    evaluation_ms: float
    seeds: tuple[Seed, ...]

    @property
    def reached(self) -> tuple[Seed, ...]:
        """The seeds that reached the accuracy."""
        return tuple(seed for seed in self.seeds if seed.reached)

    @property
    def ratio(self) -> float | None:
        """The median of predicted over measured time to the accuracy."""
        found = [s.predicted_ms / s.measured_ms for s in self.reached if s.predicted_ms is not None]
        return median(found) if found else None


def cases() -> list[Case]:
    """All workloads that can be trained."""
    return [Case(name) for name in trainings()]


def run(case: Case, run: Run) -> Row:
    """Train a workload from all seeds; raises the error of the first seed that fails."""
    with run.bench("cache", runtime="torch", threads=case.threads) as bench:
        options = TrainingOptions(
            workload=case.workload, until=UNTIL, seeds=range(SEEDS), max_epochs=MAX_EPOCHS,
            folder=run.folder / "runs", run=True,
        )  # fmt: skip
        result = train(bench.workspace, options)
    errors = [each.error for each in result.trainings if isinstance(each, TrainingFailure)]
    for error in errors:
        raise BricksError(error)
    return _row(case, result)


def _row(case: Case, result: TrainingResult) -> Row:
    predicted = result.prediction
    seeds = [
        Seed(
            training.seed,
            training.steps,
            len(training.epochs),
            round(training.accuracy, 4),
            training.reached,
            _milliseconds(training.step_s),
            _milliseconds(training.loading_s),
            _milliseconds(training.evaluation_s),
            _milliseconds(training.measured_s),
            *_predicted(training.predicted),
        )
        for training in result.runs
    ]
    return Row(
        case,
        None if predicted.step is None else _milliseconds(predicted.step.value),
        _milliseconds(predicted.loading.value),
        _milliseconds(predicted.evaluation.value),
        tuple(seeds),
    )


def _predicted(estimate: Any) -> tuple[float | None, float | None, float | None]:
    """The ends of an estimate of a training; None where steps have no estimate."""
    if estimate is None:
        return None, None, None
    ends = (estimate.estimate_s, estimate.low_s, estimate.high_s)
    value, low, high = map(_milliseconds, ends)
    return value, low, high


def _milliseconds(time_s: float) -> float:
    return digits(time_s * 1e3, 5)


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of all workloads, and how far they are off together."""
    rows = sorted(results.rows, key=lambda row: row.case.workload)
    head = ["workload", "reached", "steps", "step", "loading", "evaluation", "measured",
            "predicted", "ratio"]  # fmt: skip
    lines = table(head, (_cells(row) for row in rows if row.reached))
    failures = "\n".join(f"- {each.case.workload}: {each.error}" for each in results.failed)
    return {"training": paragraphs(lines, _summary(rows), failures)}


def _summary(rows: list[Row]) -> str:
    ratios = Ratios(tuple(row.ratio for row in rows if row.ratio is not None))
    if not ratios.values:
        return ""
    middle = median(ratios.values)
    return (
        f"The median ratio of the {len(ratios.values)} workloads is {middle:.3f} (geometric mean"
        f" {ratios.geomean:.3f}), {'within' if abs(middle - 1) <= BOUND else 'beyond'} the bound of"
        f" {percent(BOUND, 0)} that was set; the median error of a workload is"
        f" {percent(ratios.median_error)}."
    )


def summed_up(results: Results[Row]) -> dict[str, str]:
    """Times to an accuracy."""
    return summary.row("training", Ratios(tuple(r.ratio for r in results.rows if r.ratio)))


def _cells(row: Row) -> list[str]:
    steps = sorted(seed.steps for seed in row.reached)
    predicted = [s.predicted_ms for s in row.reached if s.predicted_ms is not None]
    return [
        row.case.workload,
        f"{len(row.reached)} of {len(row.seeds)}",
        f"{steps[0]}, {median(steps):g}, {steps[-1]}",
        *(_time(each) for each in (row.step_ms, row.loading_ms, row.evaluation_ms)),
        _time(median([seed.measured_ms for seed in row.reached])),
        _time(median(predicted) if predicted else None),
        number(row.ratio, 3),
    ]


def _time(time_ms: float | None) -> str:
    return seconds(None if time_ms is None else time_ms / 1e3)


BENCHMARKS = (
    Benchmark("training", "levels.md", Row, cases, run, parts, others={summary.PAGE: summed_up}),
)  # fmt: skip
