"""A thousand random architectures: predicted from a few bricks, and some of them run.

Writes docs/search.md and benchmarks/results/search.json.

    .venv/bin/python benchmarks/search.py

Bricks at one effort and whole runs of a random sample are measured in one process, in turn (see
turns.py), into one cache, so that both meet the same drift of the machine. The sample is run a
second time in another order, outside of all costs: that is the noise of the truth. Takes about
three minutes; run nothing else meanwhile. Each run is kept beside earlier ones: --first takes other
architectures.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, geometric_mean, median, stdev
from typing import Any

import onnx
from cost_page import keep
from page_parts import ratios_of
from scipy.stats import kendalltau, spearmanr
from search_space import architecture
from times import timed
from turns import Progress, Turns

from bricks import Bench, Measurement, Model
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.parts import all_known_in, state_of
from bricks.compose.recompose import recompose
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.predict.effort import EFFORTS
from bricks.report.tables import percent
from bricks.samples.call_overhead import PROBES
from bricks.session import measuring
from bricks.session.batch import decompose_all
from bricks.session.latencies import Latencies

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "search.json"
PAGE = ROOT / "docs" / "search.md"

BRICKS, WHOLES, AGAIN = "bricks", "wholes", "again"

# About how long each takes, in seconds; this only decides how they alternate.
_EXPECTED_S = {BRICKS: 10.0, WHOLES: 30.0, AGAIN: 7.0}


@dataclass(frozen=True, slots=True)
class Row:
    """An architecture that was run: its estimate, and what two runs took, in seconds.

    ``again_s`` is None where the second run was in another machine state.
    """

    model: str
    measured_s: float
    again_s: float | None
    estimate_s: float
    low_s: float
    high_s: float


class Search:
    """One run: architectures ``first`` to ``first + count``, of which ``sample`` are run whole."""

    def __init__(
        self, folder: Path, first: int, count: int, sample: int, effort: str, **options: Any
    ) -> None:
        self.folder, self.first, self.effort = folder, first, effort
        self.options = options
        self.files = [self._save(number) for number in range(first, first + count)]
        self.sample = sorted(random.Random(first).sample(range(count), sample))
        self.facts: dict[str, Any] = {"first": first, "count": count, "effort": effort}

    def _save(self, number: int) -> Path:
        proto = architecture(number)
        path = self.folder / f"{proto.graph.name}.onnx"
        onnx.save(proto, path)
        return path

    def bench(
        self, cache: str = "cache", progress: Progress | None = None, **options: Any
    ) -> Bench:
        """A bench without the timing lock: only one runs at a time."""
        conditions = options.pop("conditions", Conditions(exclusive=False))
        options |= self.options | ({} if progress is None else {"progress": progress})
        # What others published of such a host would spare measuring, here as on no other host.
        return Bench(
            self.folder / cache,
            conditions=conditions, effort=self.effort, published=False, **options,
        )  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Decompose, measure in turn, and predict; the facts of the page."""
        self._decompose()
        turns = Turns()
        turns.add(BRICKS, self._bricks, _EXPECTED_S[BRICKS])
        turns.add(WHOLES, self._wholes, _EXPECTED_S[WHOLES])
        turns.add(AGAIN, self._again, _EXPECTED_S[AGAIN])
        turns.run()
        self.facts["measuring_s"] = turns.spent_s[BRICKS]
        self.facts["wholes_s"] = turns.spent_s[WHOLES]
        self._predict()
        return self.facts

    def commands(self) -> dict[str, float]:
        """Wall time of whole commands about all architectures, in seconds."""
        files = [str(path) for path in self.files]
        runtime = self.options.get("runtime", "onnxruntime")
        known = ["--cache", str(self.folder / "cache"), "--runtime", runtime]
        known += ["--threads", str(self.options["threads"])]
        page = str(self.folder / "report.html")
        return {
            "`bricks predict`": timed(["predict", *files, *known, "--no-measure", "--json"]),
            "`bricks report`": timed(["report", *files, *known, "--no-measure", "--out", page]),
        }

    def _decompose(self) -> None:
        started = time.perf_counter()
        with self.bench() as bench:
            self.models = [bench.read(path) for path in self.files]
            read = time.perf_counter()
            decompose_all(bench.workspace, self.models)
            plans = [bench.decompose(model).plan for model in self.models]
            done = time.perf_counter()
            target = bench.target
        self.facts |= {
            "about": {
                "date": str(datetime.now(UTC).date()),
                "system": target.system.name,
                "backend": target.runtime.backend,
                "version": target.runtime.version,
                "threads": target.runtime.threads,
            },
            "nodes": sum(plan.nodes for plan in plans),
            "bricks": len({key for plan in plans for key in plan.keys}),
            "reading_s": read - started,
            "decomposing_s": done - read,
        }

    @property
    def sampled(self) -> list[Model]:
        """The models that are run, in a random order."""
        found = [self.models[at] for at in self.sample]
        random.Random(self.first + 1).shuffle(found)
        return found

    def _bricks(self, progress: Progress) -> None:
        with self.bench(progress=progress) as bench:
            self.facts["measured_bricks"] = bench.measure(self.models).new_bricks

    def _wholes(self, progress: Progress) -> None:
        with self.bench(progress=progress) as bench:
            measuring.measure_whole(bench.workspace, self.sampled)

    def _again(self, progress: Progress) -> None:
        few = Conditions(rule=StopRule(min_rounds=3, max_rounds=3), exclusive=False)
        with self.bench("again", progress, conditions=few) as bench:
            measuring.measure_whole(bench.workspace, self.sampled[::-1])

    def _predict(self) -> None:
        started = time.perf_counter()
        with self.bench() as bench:
            every = [bench.predict(model, measure=False) for model in self.models]
            self.facts["predicting_s"] = time.perf_counter() - started
            self.facts["predicted"] = sum(isinstance(each, Estimate) for each in every)
            self.facts["rows"] = [asdict(row) for row in self._rows(bench)]

    def _rows(self, bench: Bench) -> Iterator[Row]:
        target = bench.target.key
        sampled = [self.models[at] for at in self.sample]
        plans = [bench.decompose(model).plan for model in sampled]
        digests = [model.digest for model in sampled]
        keys = sorted({key for plan in plans for key in plan.keys})
        results = bench.store.measurements.results(target, [*keys, *PROBES.values(), *digests])
        with self.bench("again") as other:
            again = other.store.measurements.results(target, digests)
        latencies = Latencies(bench.store, target, str(bench.workspace.granularity))
        predictions = latencies.predictions(keys)
        for plan in plans:
            first, second = results.get(plan.digest), again.get(plan.digest)
            if not (isinstance(first, Measurement) and isinstance(second, Measurement)):
                raise SystemExit(f"{plan.model} was not run: {first} {second}")
            # As when they are compared, the estimate is for a machine state of the run.
            state_s = state_of(plan, results, first, predictions)
            mine = latencies.predictions_in(state_s, plan.keys, predictions)
            states = None
            if not all_known_in(plan, results, mine, state_s):
                states = latencies.target.states(plan.keys)
            estimate = recompose(Basis(plan, results, state_s, predictions=mine, states=states))
            if not isinstance(estimate, Estimate):
                raise SystemExit(f"{plan.model} has no estimate: {estimate}")
            yield Row(
                plan.model,
                first.latency_s(state_s),
                second.latency_s(state_s) if second.known_in(state_s) else None,
                estimate.estimate_s,
                estimate.low_s,
                estimate.high_s,
            )


HEAD = """# A thousand architectures

Written by `benchmarks/search.py`; raw results are in `benchmarks/results/search.json`.

{conclusion}

An architecture search proposes thousands of networks that nobody has run. They are put together
from the same few layers, so they share most of their bricks, and where they differ, a model learned
from a few measured bricks tells the rest. `benchmarks/search_space.py` makes the architectures from
their numbers, so that everybody's thousand is the same: two of three are convolutional networks of
plain, separable, bottleneck, inverted and dense cells, the third is a transformer with attention or
token mixing.

    .venv/bin/python benchmarks/search.py

takes about three minutes and adds a run to this page; `--first 1000` takes the next thousand. The
[notebook](../notebooks/architecture_search.ipynb) does the same from Python, with graphs in memory.
"""

ERRORS = """
## How good the predictions are

A random sample of each thousand was also run as whole models, in turn with the measurements of the
bricks. An error is |estimate / measured - 1|; the [interval](glossary.md#estimate) should hold 95 %.
The noise floor is how much two runs of a whole model in the same
[machine state](glossary.md#machine-state) differ in the median. Spearman's and Kendall's rank
correlations say whether a search would order the architectures as runs would.

| run | models run | median error | 95th percentile | worst | geometric mean | inside the interval | noise floor | Spearman | Kendall |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""  # noqa: E501

COST = """
## What it costs

Running all is what running the sample took, times the number of architectures: the standard error
of that is given. Predicting in the process is one call of `Bench.predict` for each model; the
commands are whole processes that find all plans in the cache, from the start of the interpreter.

| run | nodes | bricks | measured | read, s | decompose, s | measure, s | predict, s | together, s | running all, s | times cheaper |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""  # noqa: E501

COMMANDS = """
| run | `bricks predict`, s | `bricks report`, s |
|---|--:|--:|
"""


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    parts = [
        HEAD.format(conclusion=_conclusion(runs[-1])),
        ERRORS + "\n".join(map(_errors, runs)) + "\n",
        COST + "\n".join(map(_costs, runs)) + "\n",
        COMMANDS + "\n".join(map(_commands, runs)) + "\n",
    ]
    return "".join(parts)


def _name(run: Mapping[str, Any]) -> str:
    about = run["about"]
    last = run["first"] + run["count"] - 1
    threads = f"{about['threads']} thread{'s' * (about['threads'] > 1)}"
    return (
        f"{about['date']}, {about['system']}, {about['backend']} {about['version']}, {threads},"
        f" `{run['effort']}`, {run['first']} to {last}"
    )


def _errors_of(run: Mapping[str, Any]) -> list[float]:
    return sorted(abs(ratio - 1) for ratio in ratios_of(run["rows"]))


def _errors(run: Mapping[str, Any]) -> str:
    rows, errors = run["rows"], _errors_of(run)
    mean = geometric_mean(ratios_of(run["rows"]))
    inside = fmean(r["low_s"] <= r["measured_s"] <= r["high_s"] for r in rows)
    repeats = [abs(r["again_s"] / r["measured_s"] - 1) for r in rows if r["again_s"] is not None]
    noise = percent(median(repeats) if repeats else None)
    spearman, kendall = _ranks(run)
    p95 = errors[math.ceil(0.95 * len(errors)) - 1]
    return (
        f"| {_name(run)} | {len(rows)} | {percent(median(errors))} | {percent(p95)}"
        f" | {percent(errors[-1])} | {mean:.3f} | {percent(inside, 0)} | {noise}"
        f" | {spearman:.3f} | {kendall:.3f} |"
    )


def _ranks(run: Mapping[str, Any]) -> tuple[float, float]:
    told, true = ([row[name] for row in run["rows"]] for name in ("estimate_s", "measured_s"))
    return float(spearmanr(told, true).statistic), float(kendalltau(told, true).statistic)


def _all_s(run: Mapping[str, Any]) -> tuple[float, float]:
    """What running all would have cost, and the standard error of that."""
    took_s = [row["measured_s"] for row in run["rows"]]
    count = run["count"]
    all_s = run["reading_s"] + run["wholes_s"] / len(took_s) * count
    spread = stdev(took_s) / fmean(took_s) / math.sqrt(len(took_s)) if len(took_s) > 1 else 0.0
    return all_s, all_s * spread


def _together_s(run: Mapping[str, Any]) -> float:
    parts = ("reading_s", "decomposing_s", "measuring_s", "predicting_s")
    return float(sum(run[part] for part in parts))


def _costs(run: Mapping[str, Any]) -> str:
    all_s, off_s = _all_s(run)
    return (
        f"| {_name(run)} | {run['nodes']} | {run['bricks']} | {run['measured_bricks']}"
        f" | {run['reading_s']:.1f} | {run['decomposing_s']:.1f} | {run['measuring_s']:.1f}"
        f" | {run['predicting_s']:.1f} | {_together_s(run):.0f} | {all_s:.0f} ± {off_s:.0f}"
        f" | {all_s / _together_s(run):.0f} |"
    )


def _commands(run: Mapping[str, Any]) -> str:
    return f"| {_name(run)} | " + " | ".join(f"{s:.1f}" for s in run["commands"].values()) + " |"


def _conclusion(run: Mapping[str, Any]) -> str:
    errors, (spearman, _) = _errors_of(run), _ranks(run)
    mean = geometric_mean(ratios_of(run["rows"]))
    all_s, _ = _all_s(run)
    return (
        f"**The latencies of {run['count']} random architectures, of {run['nodes']} nodes together,"
        f" follow from measuring {run['measured_bricks']} of {run['bricks']} bricks for"
        f" {run['measuring_s']:.0f} seconds**, on {run['about']['system']} with"
        f" {run['about']['threads']} threads. Of {len(errors)} that were run as well, the median"
        f" error is {percent(median(errors))}, the geometric mean of estimate over measured"
        f" {mean:.3f}, and the rank correlation {spearman:.3f}. From"
        f" reading the models to the last prediction it took {_together_s(run):.0f} seconds;"
        f" running all would have taken about {all_s / 60:.0f} minutes."
    )


def kept_runs() -> list[dict[str, Any]]:
    """The facts of all runs so far, in the order in which they were made."""
    found: list[dict[str, Any]] = json.loads(RAW.read_text(encoding="utf-8"))["runs"]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--effort", choices=list(EFFORTS), default="balanced")
    parser.add_argument("--first", type=int, default=0, help="The first architecture's number.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=40, help="How many are run as a whole.")
    parser.add_argument("--keep", type=Path, help="A folder that keeps models and cache.")
    parser.add_argument("--page-only", action="store_true", help="Only write the page again.")
    chosen = parser.parse_args(arguments)
    runs = kept_runs() if RAW.exists() else []
    if not chosen.page_only:
        with tempfile.TemporaryDirectory() as place:
            folder = chosen.keep or Path(place)
            folder.mkdir(parents=True, exist_ok=True)
            search = Search(
                folder, chosen.first, chosen.count, chosen.sample, chosen.effort,
                threads=chosen.threads,
            )  # fmt: skip
            runs.append(search.run() | {"commands": search.commands()})
        keep({"runs": runs}, "search")
    PAGE.write_text(page(kept_runs()), encoding="utf-8")


if __name__ == "__main__":
    main()
