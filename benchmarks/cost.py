"""What does benchmarking cost? The whole zoo by running every model, and by bricks.

    .venv/bin/python -m benchmarks cost --only cost       # on a quiet host
    .venv/bin/python -m benchmarks cost --only noisy      # on a noisy one

Whole models and bricks at each effort are measured in one process, in turn (see turns.py), under
one stop rule, each with a cache and a worker of its own. All models are run a second and a third
time, in other orders, outside of all costs: these runs show the drift of the machine. Takes about
half an hour; run nothing else meanwhile, not even an editor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks import cost_page, summary
from benchmarks.cost_page import Case, Effort, ModelRow, Row
from benchmarks.prediction import took_s
from benchmarks.ratios import digits
from benchmarks.study import Benchmark, Run
from benchmarks.turns import Progress, Turns
from bricks import Bench, Measurement, Model, StopRule
from bricks.compose.basis import Basis, Results
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Decomposition, Plan
from bricks.measure.conditions import Conditions
from bricks.predict.effort import EFFORTS
from bricks.predict.prediction import BrickPredictions
from bricks.samples.call_overhead import PROBES
from bricks.samples.correction import Correction
from bricks.samples.sensitivity import Sensitivities
from bricks.samples.usual_conditions import UsualConditions
from bricks.session import measuring
from bricks.session.batch import decompose_all
from bricks.session.latencies import Latencies
from bricks.session.measured_target import HostHistory
from bricks.system.host_conditions import HostConditions
from bricks.zoo import entries

MODELS, AGAIN = "models", ("again", "once more")

# About how long each takes, in seconds; this only decides how they alternate.
_EXPECTED_S = {
    MODELS: 540.0,
    **dict.fromkeys(AGAIN, 100.0),
    "full": 86.0,
    "balanced": 36.0,
    "quick": 9.0,
}


def cases() -> list[Case]:
    """The whole zoo, with two threads."""
    return [Case(threads=2)]


def run(case: Case, run: Run) -> Row:
    """Measure everything in turn, and sum it up."""
    names = [entry.name for entry in entries()][: 4 if run.options.quick else None]
    session = Session(run, names, case.threads)
    session.measure()
    return session.row(case)


class Session:
    """One interleaved session; all caches lie in the folder of ``run``."""

    def __init__(self, run: Run, names: Sequence[str], threads: int) -> None:
        self._run, self._names, self._threads = run, names, threads
        self._models: list[Model] = []
        self._decompositions: list[Decomposition] = []
        self._reading_s = self._decomposing_s = 0.0
        self._spent_s: dict[str, float] = {}
        self._rounds = 0  # of the models' first run
        self._measured: dict[str, Any] = {}  # what measuring bricks gave, by effort

    def _bench(self, cache: str, progress: Progress | None = None, **options: Any) -> Any:
        """A bench on one of the caches, without the timing lock: only one runs at a time."""
        conditions = Conditions(rule=self._run.rule, exclusive=False)
        defaults: dict[str, Any] = {"conditions": conditions}
        if progress is not None:
            defaults["progress"] = progress
        return self._run.bench(cache, threads=self._threads, **{**defaults, **options})

    def measure(self) -> None:
        """Prepare, and measure everything in turn."""
        self._prepare()
        turns = Turns()
        for cache in (MODELS, *AGAIN, *EFFORTS):
            shutil.rmtree(self._run.folder / cache, ignore_errors=True)
            shutil.copytree(self._run.folder / "plans", self._run.folder / cache)
        turns.add(MODELS, self._whole_models, _EXPECTED_S[MODELS])
        half = len(self._models) // 2
        orders = self._models[::-1], self._models[half:] + self._models[:half]
        for cache, order in zip(AGAIN, orders, strict=True):
            turns.add(cache, partial(self._once_more, cache, order), _EXPECTED_S[cache])
        for name in EFFORTS:
            turns.add(name, partial(self._bricks, name), _EXPECTED_S[name])
        turns.run()
        self._spent_s = turns.spent_s

    def _prepare(self) -> None:
        began_s = time.perf_counter()
        with self._bench("plans") as bench:
            self._models = [bench.read(name) for name in self._names]
            read_s = time.perf_counter()
            decompose_all(bench.workspace, self._models)
            self._decompositions = [bench.decompose(model) for model in self._models]
        self._reading_s = read_s - began_s
        self._decomposing_s = time.perf_counter() - read_s

    def _whole_models(self, progress: Progress) -> None:
        with self._bench(MODELS, progress) as bench:
            self._recall(bench)
            self._rounds = measuring.measure_whole(bench.workspace, self._models).rounds

    def _once_more(self, cache: str, models: Sequence[Model], progress: Progress) -> None:
        few = Conditions(rule=StopRule(min_rounds=3, max_rounds=3), exclusive=False)
        with self._bench(cache, progress, conditions=few) as bench:
            measuring.measure_whole(bench.workspace, models)

    def _bricks(self, effort: str, progress: Progress) -> None:
        with self._bench(effort, progress, effort=effort) as bench:
            self._recall(bench)
            self._measured[effort] = bench.measure(self._models)

    def _recall(self, bench: Bench) -> None:
        """Give the bench the decompositions, as a command that decomposes and measures has them."""
        for decomposition in self._decompositions:
            bench.workspace.plans.keep(decomposition)

    def row(self, case: Case) -> Row:
        """The costs of all ways, and the errors of estimates."""
        runs = self._runs()
        pairs = [(first, again) for first, *more in runs.values() for again in more]
        all_s = self._reading_s + self._spent_s[MODELS]
        return Row(
            case,
            len(self._models),
            digits(self._reading_s, 4),
            digits(self._decomposing_s, 4),
            digits(self._spent_s[MODELS], 4),
            digits(all_s, 4),
            self._rounds,
            tuple(_change(first.latency_s, again.latency_s) for first, again in pairs),
            tuple(
                _change(first.latency_s, self._corrected_s(again, first)) for first, again in pairs
            ),
            digits(all_s - sum(_saved_s(first) for first, *_ in runs.values()), 4),
            tuple(self._effort(name, all_s) for name in EFFORTS),
        )

    def _corrected_s(self, again: Measurement, first: Measurement) -> float:
        """The latency of a repetition in the conditions of the first run, in seconds."""
        to = None if first.host is None else UsualConditions.exactly(first.host)
        correction = Correction(Sensitivities({}, self._threads), to)
        return correction.factor(again).middle * again.latency_s

    def _effort(self, name: str, all_s: float) -> Effort:
        done = self._measured[name]
        effort_s = self._reading_s + self._decomposing_s + self._spent_s[name]
        return Effort(
            name,
            digits(self._spent_s[name], 4),
            digits(effort_s, 4),
            digits(all_s / effort_s, 4),
            done.bricks,
            done.new_bricks,
            done.rounds,
            tuple(self._rows(name)),
        )

    def _runs(self) -> dict[str, list[Measurement]]:
        """The measurements of each model, by name: its first run and all repetitions."""
        found: dict[str, list[Measurement]] = {}
        for cache in (MODELS, *AGAIN):
            with self._bench(cache) as bench:
                results = bench.store.measurements.results(
                    bench.target.key, [model.digest for model in self._models]
                )
            for model in self._models:
                result = results.get(model.digest)
                if isinstance(result, Measurement):
                    found.setdefault(model.name, []).append(result)
        return {name: runs for name, runs in found.items() if len(runs) == 1 + len(AGAIN)}

    def _rows(self, effort: str) -> Iterator[ModelRow]:
        """Estimates at this effort next to the measured latencies."""
        runs = self._runs()
        with self._bench(effort) as bench:
            plans = {model.name: bench.decompose(model).plan for model in self._models}
            target = bench.target.key
            keys = sorted({key for plan in plans.values() for key in plan.keys})
            results = bench.store.measurements.results(target, [*keys, *PROBES.values()])
            latencies = Latencies(bench.store, target, "executed")
            predictions = latencies.predictions(keys)
            history = HostHistory.of(bench.store, target)
            for name, of_model in runs.items():
                plan = plans[name]
                whole = Measurement(name, tuple(r for run in of_model for r in run.rounds), 0.0)
                estimate = _estimate(history, plan, results, whole.host, predictions)
                if isinstance(estimate, Estimate):
                    yield _row(name, took_s(of_model), estimate)


def _estimate(
    history: HostHistory,
    plan: Plan,
    results: Results,
    host: HostConditions | None,
    predictions: BrickPredictions,
) -> Estimate | IncompleteEstimate:
    """The estimate in the conditions of a run."""
    conditions = None if host is None else UsualConditions.exactly(host)
    return recompose(
        Basis(plan, results, predictions, conditions, history.sensitivities(plan.keys))
    )


def _row(model: str, measured_s: float, estimate: Estimate) -> ModelRow:
    return ModelRow(
        model,
        digits(measured_s, 4),
        digits(estimate.estimate_s, 4),
        digits(estimate.low_s, 4),
        digits(estimate.high_s, 4),
        digits(estimate.predicted_share, 4),
    )


def _change(first_s: float, again_s: float) -> float:
    """How far a repetition is from the first run, relative to that."""
    return digits(abs(again_s / first_s - 1), 4)


def _saved_s(whole: Measurement) -> float:
    """About how much less time a model would take in as few rounds as the rule allows."""
    passes = len(whole.rounds[0].host_s)
    mean_s = sum(whole.host_s) / len(whole.host_s)
    more = max(0, len(whole.rounds) - StopRule().min_rounds)
    return more * (passes + 1) * mean_s  # one pass of each round warms up


BENCHMARKS = (
    Benchmark("cost", "performance.md", Row, cases, run, cost_page.parts, cost_page.listed,
              rule=StopRule(), others={summary.PAGE: cost_page.summed_up}),
    Benchmark("noisy", "performance.md", Row, cases, run, cost_page.noisy_parts, cost_page.listed,
              rule=StopRule(), module="cost"),
)  # fmt: skip
