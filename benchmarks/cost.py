"""What does benchmarking cost? The whole zoo by running every model, and by bricks.

Writes docs/performance.md and benchmarks/results/cost.json.

    .venv/bin/python benchmarks/cost.py

Whole models and bricks at each effort are measured in one process, in turn (see turns.py), under
one stop rule, each with a cache and a worker of its own. All models are run a second and a third
time, in other orders, outside of all costs: these runs show the drift of the machine, and latencies
in machine states that the first run did not meet. Takes about half an hour; run nothing else
meanwhile, not even an editor.

The page shows a quiet machine, and beside it the results of a run with --noisy on a noisy one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import prediction
from adding import adding, in_session, one_of_each_family
from cost_page import keep, tables, write
from profiling import Profile
from times import timed
from turns import Progress, Turns

from bricks import Bench, Measurement, Model
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Decomposition, Plan
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.predict.effort import EFFORTS
from bricks.samples.call_overhead import PROBES
from bricks.samples.machine_state import states
from bricks.session import measuring
from bricks.session.batch import decompose_all
from bricks.session.latencies import Latencies
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "cost.json"

MODELS, AGAIN = "models", ("again", "once more")

# About how long each takes, in seconds; this only decides how they alternate.
_EXPECTED_S = {
    MODELS: 540.0,
    **dict.fromkeys(AGAIN, 100.0),
    "full": 86.0,
    "balanced": 36.0,
    "quick": 9.0,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A model's estimate at one effort and its measured latency, in seconds."""

    model: str
    measured_s: float
    estimate_s: float
    low_s: float
    high_s: float
    predicted_share: float
    other_state_share: float

    @property
    def error(self) -> float:
        """|estimate / measured - 1|."""
        return abs(self.estimate_s / self.measured_s - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measured latency."""
        return self.low_s <= self.measured_s <= self.high_s


class Cost:
    """One interleaved run; everything lies in ``folder``."""

    def __init__(
        self, folder: Path, names: Sequence[str], threads: int, efforts: Sequence[str]
    ) -> None:
        self.folder = folder
        self.names = names
        self.threads = threads
        self.efforts = efforts
        self.preparing_s: dict[str, float] = {}
        self.spent_s: dict[str, float] = {}
        self.counts: dict[str, dict[str, Any]] = {}
        self.profiles: dict[str, Profile] = {}
        self.decompositions: list[Decomposition] = []

    def bench(self, cache: str, progress: Progress | None = None, **options: Any) -> Bench:
        """A bench on one of the caches, without the timing lock: only one runs at a time."""
        conditions = options.pop("conditions", Conditions(exclusive=False))
        options |= {} if progress is None else {"progress": progress}
        return Bench(self.folder / cache, threads=self.threads, conditions=conditions, **options)

    def run(self) -> None:
        """Prepare, and measure everything in turn."""
        started = time.perf_counter()
        with self.bench("plans") as bench:
            self.models = [bench.read(name) for name in self.names]
            read = time.perf_counter()
            decompose_all(bench.workspace, self.models)
            self.decompositions = [bench.decompose(model) for model in self.models]
            done = time.perf_counter()
        self.preparing_s = {"reading": read - started, "decomposing": done - read}
        turns = Turns()
        for cache in (MODELS, *AGAIN, *self.efforts):
            shutil.copytree(self.folder / "plans", self.folder / cache)
        turns.add(MODELS, self._models, _EXPECTED_S[MODELS])
        half = len(self.models) // 2
        orders = self.models[::-1], self.models[half:] + self.models[:half]
        for cache, order in zip(AGAIN, orders, strict=True):
            turns.add(cache, partial(self._again, cache, order), _EXPECTED_S[cache])
        for name in self.efforts:
            turns.add(name, self._effort(name, turns), _EXPECTED_S[name])
        turns.run()
        self.spent_s = turns.spent_s

    def _models(self, progress: Progress) -> None:
        with self.bench(MODELS, progress) as bench:
            self._recall(bench)
            self.counts[MODELS] = {
                "rounds": measuring.measure_whole(bench.workspace, self.models).rounds
            }

    def _again(self, cache: str, models: Sequence[Model], progress: Progress) -> None:
        few = Conditions(rule=StopRule(min_rounds=3, max_rounds=3), exclusive=False)
        with self.bench(cache, progress, conditions=few) as bench:
            measuring.measure_whole(bench.workspace, models)

    def _effort(self, name: str, turns: Turns) -> Any:
        def work(progress: Progress) -> None:
            with self.bench(name, progress, effort=name) as bench:
                self._recall(bench)
                self.profiles[name] = Profile(bench, partial(turns.clock, name))
                done = bench.measure(self.models)
            self.counts[name] = asdict(done)

        return work

    def _recall(self, bench: Bench) -> None:
        """Give the bench the decompositions, as a command that decomposes and measures has them."""
        for decomposition in self.decompositions:
            bench.workspace.plans.keep(decomposition)

    def truths(self) -> dict[str, list[Measurement]]:
        """The measurements of each model, by name: its first run and all repetitions."""
        found: dict[str, list[Measurement]] = {}
        for cache in (MODELS, *AGAIN):
            with self.bench(cache) as bench:
                of = bench.store.measurements.results(
                    bench.target.key, [m.digest for m in self.models]
                )
            for model in self.models:
                result = of.get(model.digest)
                if isinstance(result, Measurement):
                    found.setdefault(model.name, []).append(result)
        return {name: each for name, each in found.items() if len(each) == 1 + len(AGAIN)}

    def visits(self) -> list[tuple[Measurement, Measurement]]:
        """Each model's first run, paired with each repetition."""
        return [(first, again) for first, *more in self.truths().values() for again in more]

    def rows(self, effort: str) -> list[Row]:
        """Estimates at this effort beside the measured latencies."""
        with self.bench(effort) as bench:
            plans = {m.name: bench.decompose(m).plan for m in self.models}
            target = bench.target.key
            keys = sorted({key for plan in plans.values() for key in plan.keys})
            results = bench.store.measurements.results(target, [*keys, *PROBES.values()])
            latencies = Latencies(bench.store, target, "executed")
            predictions = latencies.predictions(keys)
            found = []
            for name, runs in self.truths().items():
                plan = plans[name]
                whole = Measurement(name, tuple(r for run in runs for r in run.rounds), 0.0)
                state_s = state_of(plan, results, whole, predictions)
                mine = latencies.predictions_in(state_s, plan.keys, predictions)
                estimate = recompose(Basis(plan, results, state_s, predictions=mine))
                if isinstance(estimate, Estimate):
                    found.append(_row(plan, estimate, prediction.took_s(runs, state_s)))
        return found


def _row(plan: Plan, estimate: Estimate, measured_s: float) -> Row:
    return Row(
        plan.model,
        measured_s,
        estimate.estimate_s,
        estimate.low_s,
        estimate.high_s,
        estimate.predicted_share,
        estimate.other_state_share,
    )


def processes(cost: Cost) -> dict[str, float]:
    """Wall time of whole commands, in seconds."""
    threads = ["--threads", str(cost.threads)]
    measured = ["--cache", str(cost.folder / "full"), *threads]
    with tempfile.TemporaryDirectory() as empty:
        zoo = ["decompose", *cost.names, "--cache", empty, *threads]
        return {
            "`bricks --help`": timed(["--help"]),
            "`bricks predict resnet50_v1`, all measured before": timed(
                ["predict", "resnet50_v1", *measured]
            ),
            f"`bricks decompose` of {len(cost.names)} models, nothing cached": timed(zoo),
            "the same again": timed(zoo),
        }


def about(cost: Cost) -> dict[str, Any]:
    """Date, system and runtime of the run."""
    with cost.bench(MODELS) as bench:
        target = bench.target
    return {
        "date": str(datetime.now(UTC).date()),
        "system": target.system.name,
        "backend": target.runtime.backend,
        "version": target.runtime.version,
        "threads": target.runtime.threads,
    }


def one_more(cost: Cost) -> dict[str, Any]:
    """The cost of adding a model."""
    some = one_of_each_family(cost.names)
    where = cost.folder, some, cost.efforts, cost.threads
    return {"about": about(cost), "rows": adding(*where), "in_session": in_session(*where)}


def facts_of(cost: Cost) -> dict[str, Any]:
    """The facts of the page about models and efforts."""
    with cost.bench(MODELS) as bench:
        wholes = bench.store.measurements.results(bench.target.key, [m.digest for m in cost.models])
    saved_s = sum(_saved_s(m) for m in wholes.values() if isinstance(m, Measurement))
    reading_s, decomposing_s = cost.preparing_s["reading"], cost.preparing_s["decomposing"]
    all_s = reading_s + cost.spent_s[MODELS]
    first = cost.efforts[0]
    profile = {"reading models": reading_s, "decomposing": decomposing_s}
    facts: dict[str, Any] = {
        "about": about(cost),
        "models": len(cost.models),
        "reading_s": reading_s,
        "decomposing_s": decomposing_s,
        "models_s": cost.spent_s[MODELS],
        "all_s": all_s,
        "rounds": cost.counts[MODELS]["rounds"],
        "noise": [abs(again.latency_s() / first.latency_s() - 1) for first, again in cost.visits()],
        "noise_in_state": [
            abs(again.latency_s(state_s) / first.latency_s(state_s) - 1)
            for first, again in cost.visits()
            for state_s in states(r.state_s for r in first.quiet_rounds)
            if first.known_in(state_s) and again.known_in(state_s)
        ],
        "fewest_s": all_s - saved_s,
        "profiles": {
            "after": {"seconds": profile | dict(cost.profiles[first].of(cost.spent_s[first]))},
        },
        "efforts": {},
    }
    for name in cost.efforts:
        done = cost.counts[name]
        effort_s = reading_s + decomposing_s + cost.spent_s[name]
        facts["efforts"][name] = {
            "measuring_s": cost.spent_s[name],
            "all_s": effort_s,
            "speedup_wall": all_s / effort_s,
            "bricks": done["bricks"],
            "measured_bricks": done["new_bricks"],
            "rounds": done["rounds"],
            "rows": [asdict(row) for row in cost.rows(name)],
        }
    return facts


def _saved_s(whole: Measurement) -> float:
    """About how much less time a model would take in as few rounds as the rule allows."""
    passes = len(whole.rounds[0].host_s)
    mean_s = sum(whole.host_s) / len(whole.host_s)
    more = max(0, len(whole.rounds) - StopRule().min_rounds)
    return more * (passes + 1) * mean_s  # one pass of each round warms up


def main() -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=[entry.name for entry in entries()])
    parser.add_argument("--efforts", nargs="+", choices=list(EFFORTS), default=list(EFFORTS))
    parser.add_argument("--keep", type=Path, help="A folder that keeps the caches.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--page-only", action="store_true", help="Only write the page again.")
    only.add_argument(
        "--tables", action="store_true", help="Only print the tables with a row for each model."
    )
    only.add_argument(
        "--adding-only", action="store_true", help="Only add models, to caches that were kept."
    )
    only.add_argument(
        "--noisy", action="store_true", help="Only the whole zoo, for the part on a noisy host."
    )
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(RAW.read_text(encoding="utf-8"))))
        return
    if arguments.adding_only and arguments.keep is None:
        parser.error("--adding-only needs --keep: the folder of an earlier run")
    if arguments.adding_only:
        cost = Cost(arguments.keep, arguments.models, arguments.threads, arguments.efforts)
        keep(json.loads(RAW.read_text(encoding="utf-8")) | {"adding": one_more(cost)}, "cost")
    elif not arguments.page_only:
        with tempfile.TemporaryDirectory() as place:
            folder = arguments.keep or Path(place)
            cost = Cost(folder, arguments.models, arguments.threads, arguments.efforts)
            cost.run()
            facts = facts_of(cost)
            # At once, so that nothing measured is lost.
            keep(facts, "cost_noisy" if arguments.noisy else "cost")
            if not arguments.noisy:
                facts["processes"] = processes(cost)
                facts["adding"] = one_more(cost)
                keep(facts, "cost")
    write()


if __name__ == "__main__":
    main()
