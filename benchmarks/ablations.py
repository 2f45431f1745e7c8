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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx
from page_parts import put

from bricks import Bench
from bricks.backends import create
from bricks.backends.base import Backend, BindableModel, Binding, BoundModel
from bricks.backends.filling import filled
from bricks.backends.onnx_instruments.models import (
    EVICTION_READ,
    REFERENCE,
    chain,
    eviction_read,
    reference,
)
from bricks.compose.basis import IN_WALK_CALL_FACTOR
from bricks.decompose.plan import Decomposition
from bricks.graph.view import parse_model
from bricks.measure.walk import Walk, WalkStep, without_feedback, without_region
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.samples.call_overhead import LONG, SHORT, call_overhead_s
from bricks.samples.machine_state import same_state
from bricks.samples.statistics import median
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "ablations.json"
PAGE = ROOT / "docs" / "measuring.md"

ROUNDS, PASSES = 6, 2
MAX_EVICTION_BYTES = 64 << 20

AS_IT_IS = "as it is"
WAYS = {
    AS_IT_IS: "walked in plan order at three places each, in the memory that a model would use, two"
    " occurrences leading in, weights of their own, ballast before each pass",
    "one place": "each brick is timed at one place",
    "five places": "each brick is timed at five places",
    "weights shared": "a brick's places share its weights",
    "no ballast": "nothing is read in place of the weights that the walk lacks",
    "neither": "weights shared, and no ballast",
    "no lead-in": "only the timed bricks are walked",
    "five lead in": "five occurrences lead in instead of two",
    "own buffers": "every brick has buffers of its own",
    "own buffers, in a loop": "each brick is run again at once, with buffers of its own",
    "in a loop": "each brick is run again at once, in the memory that a model would use",
    "a session each": "every occurrence has a session and weights of its own, all are timed",
}
AFTERWARDS = {
    "overhead left in": "as it is, the cost of a call not subtracted",
    "normalised": "as it is, each round's latencies divided by the reference workload's",
}

Sample = Callable[[], list[float]]


class Bed:
    """A model's bricks and the model itself, loaded in this process and ready to run."""

    def __init__(
        self, backend: Backend, skeleton: bytes, found: Decomposition, max_eviction_bytes: int
    ) -> None:
        self.found = found
        self.backend = backend
        self.max_eviction_bytes = max_eviction_bytes
        self.count = found.plan.counts
        memory = filled(self.walk().region_bytes + 64, seed=0)
        self.region = memory[-memory.ctypes.data % 64 :]
        self.loads: dict[str, BindableModel] = {}
        self.ballasts: dict[int, BoundModel] = {}
        inputs, outputs = len(found.plan.inputs), len(found.plan.outputs)
        whole = backend.load(parse_model(skeleton), key="whole", optimize=True)
        self.whole = whole.bind(Binding((None,) * inputs, (None,) * outputs), self.region)
        self.reference = self._instrument(reference(), REFERENCE)

    def walk(self, **changes: int) -> Walk:
        """The walk over all bricks, with ``changes`` to its options."""
        options: dict[str, Any] = {"max_eviction_bytes": self.max_eviction_bytes, **changes}
        return walk_of(self.found, set(self.found.plan.keys), WalkOptions(**options))

    def ways(self) -> dict[str, tuple[list[WalkStep], Sample]]:
        """The steps of each way, and a function that samples them once."""
        as_it_is = self.walk()
        shared = replace(
            as_it_is,
            loads=tuple(load for load in as_it_is.loads if not load.copy),
            steps=tuple(replace(step, copy=0) for step in as_it_is.steps),
        )
        every = len(self.found.plan.occurrences)
        return {
            AS_IT_IS: self._in_order(as_it_is),
            "one place": self._in_order(self.walk(occurrences=1)),
            "five places": self._in_order(self.walk(occurrences=5)),
            "weights shared": self._in_order(shared),
            "no ballast": self._in_order(replace(as_it_is, max_eviction_bytes=0)),
            "neither": self._in_order(replace(shared, max_eviction_bytes=0)),
            "no lead-in": self._in_order(self.walk(prefix_length=0)),
            "five lead in": self._in_order(self.walk(prefix_length=5)),
            "own buffers": self._in_order(without_region(as_it_is)),
            "own buffers, in a loop": self._looped(without_region(as_it_is)),
            "in a loop": self._looped(as_it_is),
            "a session each": self._in_order(self.walk(occurrences=every), own=True),
        }

    def estimate_s(
        self, steps: Sequence[WalkStep], columns: Sequence[Sequence[float]], less_s: float
    ) -> float:
        """The sum over all occurrences of each brick's mean over its places, less a call."""
        weights: dict[str, float] = {}
        timed: dict[str, float] = {}
        for step, column in zip(steps, columns, strict=True):
            if step.timed:
                weights[step.key] = weights.get(step.key, 0.0) + step.weight
                timed[step.key] = timed.get(step.key, 0.0) + step.weight * median(column)
        return sum(
            self.count[key] * max(0.0, total / weights[key] - less_s)
            for key, total in timed.items()
        )

    def _load(self, walk: Walk, step: WalkStep, own: bool) -> BindableModel:
        name = step.name if own else step.load
        if name not in self.loads:
            load = next(load for load in walk.loads if load.key == step.key)
            model = parse_model(load.model)
            self.loads[name] = self.backend.load(model, key=load.key, optimize=False)
        return self.loads[name]

    def _bound(self, walk: Walk, steps: Sequence[WalkStep], own: bool) -> list[BoundModel]:
        return [
            self._load(walk, step, own).bind(Binding(step.inputs, step.outputs), self.region)
            for step in steps
        ]

    def _in_order(self, walk: Walk, *, own: bool = False) -> tuple[list[WalkStep], Sample]:
        steps = without_feedback(walk.steps)
        bound = self._bound(walk, steps, own)
        size_bytes = 0 if own else walk.eviction_bytes(steps)
        if size_bytes and size_bytes not in self.ballasts:
            self.ballasts[size_bytes] = self._instrument(eviction_read(size_bytes), EVICTION_READ)

        def sample() -> list[float]:
            if size_bytes:
                self.ballasts[size_bytes].sample()
            return [one.sample().host_s for one in bound]

        return steps, sample

    def _looped(self, walk: Walk) -> tuple[list[WalkStep], Sample]:
        steps = [step for step in without_feedback(walk.steps) if step.timed]
        bound = self._bound(walk, steps, own=False)

        def again(one: BoundModel) -> float:
            one.sample()
            one.sample()
            return one.sample().host_s

        return steps, lambda: [again(one) for one in bound]

    def _instrument(self, model: onnx.ModelProto, key: str) -> BoundModel:
        loaded = self.backend.load(model, key=key, optimize=False)
        return loaded.bind(Binding((None,), (None,)), self.region)


def overhead_probes(backend: Backend) -> dict[int, BoundModel]:
    """The chains that measure the call overhead, ready to run."""
    free, nothing = Binding((None,), (None,)), np.zeros(0, np.uint8)
    return {
        length: backend.load(chain(length), key=f"chain{length}", optimize=False).bind(
            free, nothing
        )
        for length in (SHORT, LONG)
    }


def reference_s(bed: Bed) -> float:
    """The current latency of the reference workload."""
    bed.reference.sample()
    return min(bed.reference.sample().host_s for _ in range(5))


def examine(bed: Bed, probes: Mapping[int, BoundModel]) -> dict[str, float]:
    """Estimate over measured latency, by way."""
    ways = bed.ways()
    taken: dict[str, list[list[float]]] = {way: [] for way in ways}
    references: list[float] = []
    whole: list[float] = []
    calls: list[tuple[float, float]] = []
    rounds = 0
    while rounds < ROUNDS:
        before_s = reference_s(bed)
        bed.whole.sample()
        whole_s = [bed.whole.sample().host_s for _ in range(PASSES)]
        round_s = {}
        for way, (_, sample) in ways.items():
            bed.whole.sample()  # all ways start with the caches as the model leaves them
            sample()
            round_s[way] = [sample() for _ in range(PASSES)]
        if not same_state(before_s, reference_s(bed)):
            continue  # the machine state has changed
        if references and not same_state(before_s, median(references)):
            references, whole, calls, rounds = [], [], [], 0
            taken = {way: [] for way in ways}
        rounds += 1
        references += [before_s] * PASSES
        whole += whole_s
        for way, samples in round_s.items():
            taken[way] += samples
        short, long = ([one.sample().host_s for _ in range(5)][-1] for one in probes.values())
        calls.append((short, long))
    overhead_s = call_overhead_s(median([c[0] for c in calls]), median([c[1] for c in calls]))
    less_s = IN_WALK_CALL_FACTOR * overhead_s
    measured_s = median(whole)

    def estimate_s(way: str, scale: Sequence[float], less_s: float) -> float:
        columns = [
            [s * f for s, f in zip(column, scale, strict=True)]
            for column in zip(*taken[way], strict=True)
        ]
        return bed.estimate_s(ways[way][0], columns, less_s)

    even = [1.0] * len(whole)
    ratios = {way: (estimate_s(way, even, less_s) + overhead_s) / measured_s for way in ways}
    ratios["overhead left in"] = estimate_s(AS_IT_IS, even, 0.0) / measured_s
    level = median(references)
    scale = [level / r for r in references]
    steady_s = median([s * f for s, f in zip(whole, scale, strict=True)])
    normalised_s = estimate_s(AS_IT_IS, scale, less_s) + overhead_s
    return {**ratios, "normalised": normalised_s / steady_s}


def examine_all(names: Sequence[str], threads: int) -> dict[str, dict[str, float]]:
    """Ratios by model and way, in this process."""
    backend = create("onnxruntime", threads=threads, seed=0)
    probes = overhead_probes(backend)
    found = {}
    with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=threads) as bench:
        for name in names:
            model = bench.read(name, batch=1)
            bed = Bed(backend, model.skeleton, bench.decompose(model), MAX_EVICTION_BYTES)
            found[name] = examine(bed, probes)
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
            late = errors[math.ceil(0.95 * len(errors)) - 1]
            cells += [f"{100 * e:.1f} %" for e in (median(errors), late, errors[-1])]
            cells.append(f"{geometric_mean(values):.3f}")
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
        # A runtime keeps one pool of threads for the lifetime of its process.
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
    put(PAGE, __file__, {"ablations": table(results)})


if __name__ == "__main__":
    main()
