"""Do answers hold at another time? Bricks are measured once, and whole models run hours later.

    .venv/bin/python -m benchmarks another_time --minutes 0    # one pass; again hours later

The first pass measures the bricks. Each pass answers for usual conditions and for now, and then
runs every model with the runtime's own Python for some seconds (``own_python.py``): the interval
should hold the median of these runs. Run nothing else meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, BricksError, Model
from bricks.compose.estimate import Estimate
from bricks.report.tables import number, percent
from bricks.samples.statistics import median
from bricks.samples.usual_conditions import UsualConditions
from bricks.session import measuring, predicting
from bricks.session.predicting import present_conditions
from bricks.zoo import entries

MODELS = (
    "bert_mini", "deit_small", "densenet121", "electra_small", "levit", "mobilenet_v2",
    "mobilevit", "resnet18", "segformer", "shufflenet", "squeezenet", "vit_tiny",
)  # fmt: skip
PASSES, THREADS, RUN_S = 5, (1, 2), 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """One pass over all models."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """An estimate with its interval, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, estimate: Estimate) -> Answer:
        """The figures of ``estimate``."""
        ends = estimate.estimate_s, estimate.low_s, estimate.high_s
        return cls(*(digits(end, 4) for end in ends))

    def holds(self, run_s: float) -> bool:
        """Whether the interval holds a run."""
        return self.low_s <= run_s <= self.high_s

    @property
    def half_width(self) -> float:
        """Half the width of the interval, relative to the estimate."""
        return (self.high_s - self.low_s) / 2 / self.estimate_s


@dataclass(frozen=True, slots=True)
class Timed:
    """A model with a number of threads: the answers before a run of it, and the run's median."""

    model: str
    threads: int
    run_s: float
    usual: Answer
    now: Answer


@dataclass(frozen=True, slots=True)
class Row:
    """One pass, which began ``hours`` after the bricks were measured; ``watched_s`` by threads."""

    case: Case
    hours: float
    watched_s: tuple[float, ...]
    models: tuple[Timed, ...]


def cases() -> list[Case]:
    """The passes."""
    return [Case(number + 1) for number in range(PASSES)]


def run(case: Case, run: Run) -> Row:
    """Answer for each model, and run it."""
    folder = run.folder
    folder.mkdir(parents=True, exist_ok=True)
    began = folder / "measured.json"
    names = MODELS[: 2 if run.options.quick else None]
    timed, watched = list[Timed](), list[float]()
    for threads in THREADS:
        with run.bench("bricks", threads=threads) as bench:
            models = [bench.read(name) for name in names]
            bench.measure(models)
            if not began.exists():
                began.write_text(json.dumps(time.time()))
            timed += _pass(bench, models, threads, 0.2 if run.options.quick else RUN_S)
            seen = bench.store.measurements.watched(bench.target.key)
            usual = UsualConditions.seen(seen)
            watched.append(0.0 if usual is None else usual.watched_s)
    hours = (time.time() - json.loads(began.read_text())) / 3600
    return Row(case, digits(hours, 3), tuple(watched), tuple(timed))


def _pass(bench: Bench, models: Iterable[Model], threads: int, seconds: float) -> Iterator[Timed]:
    for model in models:
        usual = predicting.predict(bench.workspace, model, measure=False)
        measuring.renew(bench.workspace, [model])
        conditions = present_conditions(bench.workspace)
        now = predicting.predict(bench.workspace, model, measure=False, conditions=conditions)
        bench.workspace.supervisor.reset()  # its threads would be in the way
        if not isinstance(usual, Estimate) or not isinstance(now, Estimate):
            raise BricksError(f"{model.name} has no estimate")
        run_s = median(_runs_s(model.name, threads, seconds))
        yield Timed(model.name, threads, digits(run_s, 4), Answer.of(usual), Answer.of(now))


def _runs_s(name: str, threads: int, seconds: float) -> list[float]:
    """Seconds of runs in a process of its own."""
    (file,) = (entry.path for entry in entries() if entry.name == name)
    words = [Path(__file__).with_name("own_python.py"), file, threads, seconds]
    done = subprocess.run(
        [sys.executable, *map(str, words)], check=True, capture_output=True, text=True
    )
    runs: list[float] = json.loads(done.stdout)
    return runs


def parts(results: Results[Row]) -> dict[str, str]:
    """Errors of usual answers and of answers for now, for each number of threads."""
    head = ["threads", "answer", "runs", "median error", "95th percentile",
            "geometric mean of ratios", "inside the interval",
            "half the interval, median"]  # fmt: skip
    lines = [
        [str(threads), title, *_figures(results.rows, threads, now=now)]
        for threads in THREADS
        for title, now in (("usual", False), ("now", True))
    ]
    spread = [[str(threads), *_spread(results.rows, threads)] for threads in THREADS]
    return {
        "date": results.about.date,
        "system": f"{results.about.system} with {results.about.runtime}",
        "passes": str(len(results.rows)),
        "hours": ", ".join(number(row.hours, 1) for row in results.rows),
        "watched": ", ".join(f"{max(row.watched_s):.0f}" for row in results.rows),
        "errors": table(head, lines),
        "spread": table(["threads", "median difference", "95th percentile"], spread),
    }


def _figures(rows: Iterable[Row], threads: int, *, now: bool) -> list[str]:
    pairs = [
        (of.now if now else of.usual, of.run_s)
        for row in rows
        for of in row.models
        if of.threads == threads
    ]
    ratios = Ratios(tuple(answer.estimate_s / run_s for answer, run_s in pairs))
    inside = sum(answer.holds(run_s) for answer, run_s in pairs) / len(pairs)
    return [
        str(len(pairs)), percent(ratios.median_error), percent(ratios.p95_error),
        number(ratios.geomean, 3), percent(inside, 0),
        percent(median([answer.half_width for answer, _ in pairs])),
    ]  # fmt: skip


def _spread(rows: Iterable[Row], threads: int) -> list[str]:
    """How much runs of one model differ between passes, relative to each other."""
    by_model: dict[str, list[float]] = {}
    for row in rows:
        for of in row.models:
            if of.threads == threads:
                by_model.setdefault(of.model, []).append(of.run_s)
    pairs = [
        one / other
        for runs in by_model.values()
        for at, one in enumerate(runs)
        for number_, other in enumerate(runs)
        if at != number_
    ]
    if not pairs:
        return ["–", "–"]
    ratios = Ratios(tuple(pairs))
    return [percent(ratios.median_error), percent(ratios.p95_error)]


BENCHMARKS = (Benchmark("another_time", "another_time.md", Row, cases, run, parts, per_host=True),)
