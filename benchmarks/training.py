"""How accurate are predicted trainings? Time to an accuracy, predicted beside measured.

Writes docs/levels.md (its table) and benchmarks/results/training.json.

    .venv/bin/python benchmarks/training.py --minutes 30

Each workload of the zoo that can be trained is trained from five seeds, with one thread. Each one
is kept at once, and epochs are kept too; the next call goes on with what lacks. Run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import with_parts

from bricks import (
    Bench,
    BricksError,
    TrainingFailure,
    TrainingOptions,
    TrainingResult,
    train,
)
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent, seconds
from bricks.samples.statistics import median
from bricks.zoo import trainings

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "training.json"
PAGE = ROOT / "docs" / "levels.md"
CACHE = ROOT / "cache" / "trainings"


UNTIL, SEEDS, MAX_EPOCHS = 0.95, 5, 50
RULE = StopRule(precision=0.02, max_rounds=12)

# The median ratio of all workloads should be this close to one.
BOUND = 0.05


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
    """A workload from several seeds; ``error`` says why there is none, or not of all seeds."""

    workload: str
    threads: int
    step_ms: float | None = None
    loading_ms: float | None = None
    evaluation_ms: float | None = None
    seeds: tuple[Seed, ...] = ()
    error: str | None = None

    @property
    def reached(self) -> tuple[Seed, ...]:
        """The seeds that reached the accuracy."""
        return tuple(seed for seed in self.seeds if seed.reached)

    @property
    def ratio(self) -> float | None:
        """The median of predicted over measured time to the accuracy."""
        found = [s.predicted_ms / s.measured_ms for s in self.reached if s.predicted_ms is not None]
        return median(found) if found else None


def main(words: Sequence[str] | None = None) -> None:
    """Train what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--max-epochs", type=int, default=MAX_EPOCHS)
    parser.add_argument("--workloads", nargs="+", default=list(trainings()))
    parser.add_argument("--minutes", type=float, help="Begin no workload after this time.")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    rows = _load(arguments.raw)
    if not arguments.pages:
        _measure(rows, arguments)
    text = arguments.page.read_text(encoding="utf-8")
    arguments.page.write_text(page(rows, text), encoding="utf-8")


def _measure(rows: dict[str, Row], arguments: argparse.Namespace) -> None:
    deadline = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with Bench(
        arguments.cache, runtime="torch", threads=arguments.threads,
        conditions=Conditions(rule=RULE), published=False,
    ) as bench:  # fmt: skip
        for name in arguments.workloads:
            if name in rows and rows[name].error is None:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                break
            try:
                result = train(
                    bench.workspace,
                    TrainingOptions(
                        workload=name, until=UNTIL, seeds=range(arguments.seeds),
                        max_epochs=arguments.max_epochs, folder=arguments.cache / "runs",
                    ),
                )  # fmt: skip
                rows[name] = _row(result)
            except BricksError as error:
                rows[name] = Row(name, arguments.threads, error=str(error))
            print(name, rows[name].ratio, rows[name].error, flush=True)
            _save(rows, arguments.raw, bench)


def _row(result: TrainingResult) -> Row:
    failed = [each.error for each in result.trainings if isinstance(each, TrainingFailure)]
    parts = result.prediction
    return Row(
        result.workload,
        result.target.runtime.threads,
        None if parts.step is None else _milli(parts.step.value),
        _milli(parts.loading.value),
        _milli(parts.evaluation.value),
        tuple(
            Seed(
                run.seed,
                run.steps,
                len(run.epochs),
                round(run.accuracy, 4),
                run.reached,
                _milli(run.step_s),
                _milli(run.loading_s),
                _milli(run.evaluation_s),
                _milli(run.measured_s),
                *_predicted(run.predicted),
            )
            for run in result.runs
        ),
        failed[0] if failed else parts.reason,
    )


def _predicted(of: Any) -> tuple[float | None, float | None, float | None]:
    if of is None:
        return None, None, None
    return _milli(of.estimate_s), _milli(of.low_s), _milli(of.high_s)


def _milli(time_s: float) -> float:
    return float(f"{time_s * 1e3:.5g}")


def _load(raw: Path) -> dict[str, Row]:
    if not raw.exists():
        return {}
    found = json.loads(raw.read_text(encoding="utf-8"))["rows"]
    rows = [Row(**{**row, "seeds": tuple(Seed(**seed) for seed in row["seeds"])}) for row in found]
    return {row.workload: row for row in rows}


def _save(rows: dict[str, Row], raw: Path, bench: Bench) -> None:
    facts = {
        "system": bench.target.system.name,
        "runtime": bench.target.runtime.to_json(),
        "date": datetime.now(UTC).date().isoformat(),
        "until": UNTIL,
        "rows": [asdict(row) for _, row in sorted(rows.items())],
    }
    raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def page(rows: dict[str, Row], text: str) -> str:
    """The page with the table of these rows."""
    lines = [
        "| workload | reached | steps | step | loading | evaluation | measured | predicted |"
        " ratio |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(row) for _, row in sorted(rows.items()) if row.reached),
    ]
    ratios = [row.ratio for row in rows.values() if row.ratio is not None]
    if ratios:
        off = abs(median(ratios) - 1)
        lines += [
            "",
            f"The median ratio of the {len(ratios)} workloads is {median(ratios):.3f} (geometric"
            f" mean {geometric_mean(ratios):.3f}),"
            f" {'within' if off <= BOUND else 'beyond'} the bound of {percent(BOUND, 0)} that was"
            " set; the median error of a workload is"
            f" {percent(median([abs(ratio - 1) for ratio in ratios]))}.",
        ]
    lines += [f"- {row.workload}: {row.error}" for _, row in sorted(rows.items()) if row.error]
    return with_parts(text, __file__, {"training": "\n".join(lines if rows else [])})


def _line(row: Row) -> str:
    steps = sorted(seed.steps for seed in row.reached)
    measured = median([seed.measured_ms for seed in row.reached]) / 1e3
    predicted = [s.predicted_ms for s in row.reached if s.predicted_ms is not None]
    cells = (
        row.workload,
        f"{len(row.reached)} of {len(row.seeds)}",
        f"{steps[0]}, {median(steps):g}, {steps[-1]}",
        *(_time(each) for each in (row.step_ms, row.loading_ms, row.evaluation_ms)),
        seconds(measured),
        seconds(median(predicted) / 1e3 if predicted else None),
        number(row.ratio, 3),
    )
    return f"| {' | '.join(cells)} |"


def _time(time_ms: float | None) -> str:
    return seconds(None if time_ms is None else time_ms / 1e3)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
