"""What does benchmarking cost? The whole zoo by running every model, and by bricks.

Writes docs/performance.md and benchmarks/results/cost.json.

    .venv/bin/python benchmarks/cost.py

Whole models and bricks at each effort are measured in one process, in turn (see turns.py), under
one stop rule, each with a cache and a worker of its own. All models are run a second time, in
reverse order, which counts as nobody's cost: it tells how far the machine itself drifts. Takes
about half an hour; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turns import Progress, Turns

from bricks import Bench, Measurement
from bricks.decompose.plan import Plan
from bricks.estimate.effort import EFFORTS
from bricks.estimate.estimate import Estimate
from bricks.estimate.recompose import recompose, round_spread, state_of
from bricks.knowledge import Knowledge
from bricks.measure.campaign import Conditions
from bricks.measure.probes import PROBES
from bricks.measure.rounds import StopRule
from bricks.measure.statistics import median
from bricks.survey import decompose_all
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "cost.json"

MODELS, AGAIN = "models", "again"


@dataclass(frozen=True, slots=True)
class Row:
    """A model's estimate at one effort beside what it took, in seconds; what it stands on."""

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
        """Whether the interval holds what was measured."""
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

    def bench(self, cache: str, progress: Progress | None = None, **options: Any) -> Bench:
        """A bench on one of the caches; no lock, since only one runs at a time anyhow."""
        conditions = options.pop("conditions", Conditions(exclusive=False))
        options |= {} if progress is None else {"progress": progress}
        return Bench(self.folder / cache, threads=self.threads, conditions=conditions, **options)

    def run(self) -> None:
        """Prepare, and measure everything in turn."""
        started = time.perf_counter()
        with self.bench("plans") as bench:
            self.models = [bench.read(name) for name in self.names]
            read = time.perf_counter()
            decompose_all(bench, self.models)
            done = time.perf_counter()
        self.preparing_s = {"reading": read - started, "decomposing": done - read}
        turns = Turns()
        for cache in (MODELS, AGAIN, *self.efforts):
            shutil.copytree(self.folder / "plans", self.folder / cache)
        turns.add(MODELS, self._models)
        turns.add(AGAIN, self._again)
        for name in self.efforts:
            turns.add(name, self._effort(name))
        turns.run()
        self.spent_s = turns.spent_s

    def _models(self, progress: Progress) -> None:
        with self.bench(MODELS, progress) as bench:
            self.counts[MODELS] = {"rounds": bench.run(self.models).rounds}

    def _again(self, progress: Progress) -> None:
        few = Conditions(rule=StopRule(min_rounds=3, max_rounds=3), exclusive=False)
        with self.bench(AGAIN, progress, conditions=few) as bench:
            bench.run(self.models[::-1])

    def _effort(self, name: str) -> Any:
        def work(progress: Progress) -> None:
            with self.bench(name, progress, effort=name) as bench:
                done = bench.measure(self.models)
            self.counts[name] = asdict(done)

        return work

    def truths(self) -> dict[str, tuple[Measurement, Measurement]]:
        """What each model took, by name: in its own run, and when it was run again."""
        found: dict[str, list[Measurement]] = {}
        for cache in (MODELS, AGAIN):
            with self.bench(cache) as bench:
                of = bench.store.results(bench.target.key, [m.digest for m in self.models])
            for model in self.models:
                result = of.get(model.digest)
                if isinstance(result, Measurement):
                    found.setdefault(model.name, []).append(result)
        return {name: (each[0], each[1]) for name, each in found.items() if len(each) == 2}

    def rows(self, effort: str) -> list[Row]:
        """Estimates at this effort beside what the models took."""
        truths = self.truths()
        with self.bench(effort) as bench:
            plans = {m.name: bench.plan(m) for m in self.models}
            target = bench.target.key
            keys = sorted({key for plan in plans.values() for key in plan.keys})
            results = bench.store.results(target, [*keys, *PROBES.values()])
            predictions = Knowledge(bench.store, target, "executed").predictions(keys)
        found = []
        for name, (first, again) in truths.items():
            whole = Measurement(name, first.rounds + again.rounds, first.wall_s)
            plan = plans[name]
            state_s = state_of(plan, results, whole)
            estimate = recompose(plan, results, state_s, predictions=predictions)
            if isinstance(estimate, Estimate):
                found.append(_row(plan, estimate, round_spread(whole, state_s).median_s))
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


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=[entry.name for entry in entries()])
    parser.add_argument("--efforts", nargs="+", default=list(EFFORTS))
    parser.add_argument("--keep", type=Path, help="A folder for the caches; else they are removed.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        cost = Cost(
            arguments.keep or Path(place), arguments.models, arguments.threads, arguments.efforts
        )
        cost.run()
        report(cost)


def report(cost: Cost) -> None:
    """Print what was found."""
    truths = cost.truths()
    noise = [abs(b.latency_s() / a.latency_s() - 1) for a, b in truths.values()]
    prepare_s = sum(cost.preparing_s.values())
    models_s = cost.spent_s[MODELS] + cost.preparing_s["reading"]
    print(cost.preparing_s, cost.spent_s, {k: v for k, v in cost.counts.items()})
    print("noise", median(noise), _quantile(noise, 0.95))
    for effort in cost.efforts:
        rows = cost.rows(effort)
        errors = [row.error for row in rows]
        print(
            effort,
            "speedup %.2f" % (models_s / (prepare_s + cost.spent_s[effort])),
            "n %d med %.4f p95 %.4f max %.4f hits %.3f predicted %.3f"
            % (
                len(rows),
                median(errors),
                _quantile(errors, 0.95),
                max(errors),
                sum(r.inside for r in rows) / len(rows),
                median([r.predicted_share for r in rows]),
            ),
        )
        for row in sorted(rows, key=lambda r: -r.error)[:8]:
            print("   ", row.model, "%.3f" % (row.estimate_s / row.measured_s), row)
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps({e: [asdict(r) for r in cost.rows(e)] for e in cost.efforts}))


if __name__ == "__main__":
    main()
