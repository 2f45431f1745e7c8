"""Which parts of the measured state matter? Change one at a time, over the zoo.

Rewrites the table of ablations in docs/measuring.md, and raw results.

    .venv/bin/python benchmarks/ablations.py

For every model and thread count, bricks are sampled in several ways in turn with the whole model,
round by round, and recomposed. Raw results go to benchmarks/results/ablations.json. Takes some
minutes; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from bricks import Bench
from bricks.backends import create
from bricks.backends.base import Backend, Loaded, Placed, Placement
from bricks.backends.filling import filled
from bricks.backends.reference import REFERENCE, reference
from bricks.decompose.plan import Decomposition
from bricks.graph.view import parse_model
from bricks.measure.probes import LONG, SHORT, call_overhead_s, chain
from bricks.measure.statistics import median
from bricks.measure.walk import Step, Walk, grounded, walk_of, without_region
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "ablations.json"
PAGE = ROOT / "docs" / "measuring.md"
MARKS = ("<!-- ablations: written by benchmarks/ablations.py -->", "<!-- /ablations -->")

ROUNDS, PASSES = 8, 2
# What is read through to leave nothing of a model in any cache; twice a usual last-level cache.
SWEEP_BYTES = 64 << 20

AS_IT_IS = "as it is"
WAYS = {
    AS_IT_IS: "walked in plan order, in the shared region, two occurrences leading in",
    "no lead-in": "only the timed bricks are walked",
    "five lead in": "five occurrences lead in instead of two",
    "own buffers": "walked, every brick with buffers of its own",
    "own buffers, in a loop": "each brick run again at once, with buffers of its own",
    "in a loop": "each brick run again at once, in the shared region",
    "caches swept": "walked; before each pass, 64 MiB of other memory are read",
    "a session each": "walked, every occurrence with a session and weights of its own, all timed",
}
AFTERWARDS = {
    "overhead left in": "as it is, the cost of a call not subtracted",
    "normalised": "as it is, each round's latencies divided by the reference workload's",
}

Sample = Callable[[], list[float]]


class Bed:
    """A model's bricks and the model itself, loaded in this process and ready to run."""

    def __init__(self, backend: Backend, skeleton: bytes, found: Decomposition) -> None:
        self.plan, self.bricks = found.plan, found.bricks
        self.backend = backend
        self.count = Counter(o.brick for o in self.plan.occurrences)
        region_bytes = self.walk().region_bytes
        memory = filled(region_bytes + 64, seed=0)
        self.region = memory[-memory.ctypes.data % 64 :]
        loads = {load.key: load for load in self.walk().loads}
        self.loads = {
            key: self._load(key, load.model, load.examples) for key, load in loads.items()
        }
        free = Placement((None,) * len(self.plan.inputs), (None,) * len(self.plan.outputs))
        whole = backend.load(parse_model(skeleton), key="whole", optimize=True, examples={})
        self.whole = whole.place(free, self.region)
        self.reference = backend.load(
            reference(), key=REFERENCE, optimize=False, examples={}
        ).place(Placement((None,), (None,)), self.region)
        self.sweep = self._sweep()

    def walk(self, lead_in: int = 2) -> Walk:
        """All bricks at their first places."""
        keys = set(self.plan.keys)
        return walk_of(self.plan, self.bricks, keys, optimize=False, lead_in=lead_in)

    def ways(self) -> dict[str, tuple[list[Step], Sample]]:
        """The steps of each way, and what samples them once."""
        walked = grounded(self.walk().steps)
        alone = grounded(without_region(self.walk()).steps)
        firsts = [step for step in walked if step.timed]
        every = self._every_occurrence()
        own = [
            self._load(step.place, self.bricks[step.key].model, self.bricks[step.key].examples)
            for step in every
        ]
        return {
            AS_IT_IS: (walked, self._in_order(walked)),
            "no lead-in": self._narrow(0),
            "five lead in": self._narrow(5),
            "own buffers": (alone, self._in_order(alone)),
            "own buffers, in a loop": self._looped([s for s in alone if s.timed]),
            "in a loop": self._looped(firsts),
            "caches swept": (walked, self._swept(walked)),
            "a session each": (every, self._in_order(every, own)),
        }

    def _every_occurrence(self) -> list[Step]:
        steps = grounded(self.walk(lead_in=len(self.plan.occurrences)).steps)
        return [replace(step, timed=True, multiplicity=1) for step in steps]

    def _narrow(self, lead_in: int) -> tuple[list[Step], Sample]:
        steps = grounded(self.walk(lead_in).steps)
        return steps, self._in_order(steps)

    def _load(self, key: str, model: bytes, examples: Mapping[str, Sequence[int]]) -> Loaded:
        return self.backend.load(parse_model(model), key=key, optimize=False, examples=examples)

    def _place(self, step: Step, loaded: Loaded | None = None) -> Placed:
        placement = Placement(step.inputs, step.outputs)
        return (loaded or self.loads[step.key]).place(placement, self.region)

    def _in_order(self, steps: Sequence[Step], loaded: Sequence[Loaded] | None = None) -> Sample:
        own = loaded or [None] * len(steps)
        placed = [self._place(step, one) for step, one in zip(steps, own, strict=True)]
        return lambda: [one.sample() for one in placed]

    def _swept(self, steps: Sequence[Step]) -> Sample:
        inner = self._in_order(steps)

        def sample() -> list[float]:
            self.sweep.sample()
            return inner()

        return sample

    def _looped(self, steps: list[Step]) -> tuple[list[Step], Sample]:
        placed = [self._place(step) for step in steps]

        def again(one: Placed) -> float:
            one.sample()
            one.sample()
            return one.sample()

        return steps, lambda: [again(one) for one in placed]

    def _sweep(self) -> Placed:
        rows = SWEEP_BYTES // 4096
        values = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 1024]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows]),
        ]
        node = helper.make_node("ReduceMax", ["x"], ["y"], axes=[1], keepdims=0)
        graph = helper.make_graph([node], "sweep", values[:1], values[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        loaded = self.backend.load(model, key="sweep", optimize=False, examples={})
        return loaded.place(Placement((None,), (None,)), self.region)


def overhead_probes(backend: Backend) -> dict[int, Placed]:
    """The chains that tell what a call costs, ready to run."""
    free, nothing = Placement((None,), (None,)), np.zeros(0, np.uint8)
    return {
        length: backend.load(
            onnx.load_from_string(chain(length)), key=f"chain{length}", optimize=False, examples={}
        ).place(free, nothing)
        for length in (SHORT, LONG)
    }


def examine(bed: Bed, probes: Mapping[int, Placed]) -> dict[str, float]:
    """Estimate over measured latency, by way."""
    ways = bed.ways()
    taken: dict[str, list[list[float]]] = {way: [] for way in ways}
    references: list[float] = []
    whole: list[float] = []
    calls: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        bed.reference.sample()
        references += [bed.reference.sample()] * PASSES
        bed.whole.sample()
        whole += [bed.whole.sample() for _ in range(PASSES)]
        for way, (_, sample) in ways.items():
            sample()
            taken[way] += [sample() for _ in range(PASSES)]
        short, long = ([one.sample() for _ in range(5)][-1] for one in probes.values())
        calls.append((short, long))
    overhead_s = call_overhead_s(median([c[0] for c in calls]), median([c[1] for c in calls]))
    measured_s = median(whole)

    def estimate(way: str, scale: Sequence[float], less_s: float) -> float:
        steps = ways[way][0]
        columns = list(zip(*taken[way], strict=True))
        return sum(
            step.multiplicity
            * max(0.0, median([s * f for s, f in zip(column, scale, strict=True)]) - less_s)
            for step, column in zip(steps, columns, strict=True)
            if step.timed
        )

    even = [1.0] * len(whole)
    ratios = {way: (estimate(way, even, overhead_s) + overhead_s) / measured_s for way in ways}
    ratios["overhead left in"] = estimate(AS_IT_IS, even, 0.0) / measured_s
    level = median(references)
    scale = [level / r for r in references]
    steady_s = median([s * f for s, f in zip(whole, scale, strict=True)])
    normalised_s = estimate(AS_IT_IS, scale, overhead_s) + overhead_s
    return {**ratios, "normalised": normalised_s / steady_s}


def examine_all(names: Sequence[str], threads: int) -> dict[str, dict[str, float]]:
    """Ratios by model and way, in this process."""
    backend = create("onnxruntime", threads=threads, seed=0)
    probes = overhead_probes(backend)
    found = {}
    with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=threads) as bench:
        for name in names:
            model = bench.read(name, batch=1)
            found[name] = examine(Bed(backend, model.skeleton, bench.decompose(model)), probes)
            print(name, threads, {k: round(v, 3) for k, v in found[name].items()}, file=sys.stderr)
    return found


def table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A row for each way, errors by thread count."""
    head, rule = ["way", "what it is"], ["---", "---"]
    for threads in results:
        thread = "thread" if threads == "1" else "threads"
        head += [f"{threads} {thread}: median", "95th perc.", "worst", "geomean"]
        rule += ["--:"] * 4
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"]
    for way, what in {**WAYS, **AFTERWARDS}.items():
        cells = [way, what]
        for ratios in results.values():
            values = [of_model[way] for of_model in ratios.values()]
            errors = sorted(abs(v - 1) for v in values)
            geomean = math.exp(sum(map(math.log, values)) / len(values))
            late = errors[math.ceil(0.95 * len(errors)) - 1]
            cells += [f"{100 * e:.1f} %" for e in (median(errors), late, errors[-1])]
            cells.append(f"{geomean:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure in a process per thread count, and write the table and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", default=[e.name for e in entries()])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(examine_all(arguments.models, arguments.threads[0])))
        return
    results: dict[str, Any] = {}
    for threads in arguments.threads:
        # A runtime has one pool of threads for as long as its process lives.
        command = [sys.executable, __file__, "--child", "--threads", str(threads), "--models"]
        done = subprocess.run(
            [*command, *arguments.models], stdout=subprocess.PIPE, check=True, text=True
        )
        results[str(threads)] = json.loads(done.stdout)
    RAW.parent.mkdir(exist_ok=True)
    rounded = {
        t: {m: {w: round(v, 4) for w, v in ways.items()} for m, ways in of_t.items()}
        for t, of_t in results.items()
    }
    RAW.write_text(json.dumps(rounded, indent=0) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    body = f"{MARKS[0]}\n{table(results)}\n{MARKS[1]}"
    PAGE.write_text(f"{before}{body}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
