"""How does decomposing grow with a model? Graphs of 100 to 20,000 nodes, and a large decoder.

    .venv/bin/python -m benchmarks growth

Each row is the median of some processes with nothing cached; reading and decomposing are timed
inside of them, and memory is the peak of the process and of its worker together. Run nothing else
meanwhile.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import onnx
from onnx import TensorProto, helper

from benchmarks.markdown import table
from benchmarks.study import ROOT, Benchmark, Results, Run

sys.path.insert(0, str(ROOT / "tests" / "support"))
from decoder import Architecture, decoder, shapes  # found by the path above

NODES = (100, 300, 1000, 3000, 10_000, 20_000)
GRANULARITIES = ("executed", "1", "5")
WIDTH, WIDTHS, WIDE_NODES = 64, (64, 1024, 4096), 1000
# Tokens of a step of the decoder, and tokens before them.
STEPS = {"decode, 512 before": (1, 512), "prefill of 512": (512, 1)}
REPEATS = 3
# Nodes of a layer: product, bias, activation, product, sum.
LAYER = 5

DECOMPOSE = """
import json, resource, sys, time
from bricks import Bench
path, granularity, cache, shapes = sys.argv[1:]
with Bench(cache, granularity=granularity, threads=1) as bench:
    bench.decompose(bench.read("squeezenet"))  # starts the worker
    model = bench.read(path, shapes=json.loads(shapes))
    found = bench.decompose(model)
both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
print(json.dumps({
    "nodes": found.plan.nodes, "bricks": len(found.bricks), "weight_bytes": found.weight_bytes,
    "read_s": model.read_s, "decompose_s": found.wall_s,
    "peak_bytes": 1024 * sum(resource.getrusage(who).ru_maxrss for who in both),
}))
"""

# Makes a session of the graph, all optimisations included, and nothing else.
RUNTIME = """
import json, sys, time
from bricks import read_model
from bricks.backends import create
from bricks.backends.onnxruntime.optimized import save_optimized
from bricks.backends.onnxruntime.synthetic_data import SurrogateWeights
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model
create("onnxruntime", threads=1, seed=0)
proto, surrogates = parse_model(read_model(sys.argv[1]).skeleton), SurrogateWeights(Pool(0))
started = time.perf_counter()
save_optimized(proto, surrogates, "all")
print(json.dumps({"runtime_s": time.perf_counter() - started}))
"""


def layers(nodes: int, width: int) -> onnx.ModelProto:
    """A residual network of ``nodes`` nodes, whose weights are in a file that does not exist."""
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(*dims: int) -> str:
        name = f"w{len(weights)}"
        tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights")
        weights.append(tensor)
        return name

    def add(op: str, *inputs: str) -> str:
        made.append(helper.make_node(op, inputs, [f"v{len(made)}"], name=f"{op}{len(made)}"))
        return str(made[-1].output[0])

    x = "x"
    for _ in range(nodes // LAYER):
        hidden = add("Add", add("MatMul", x, weight(width, width)), weight(width))
        x = add("Add", x, add("MatMul", add("Relu", hidden), weight(width, width)))
    shape = [1, 4, width]
    graph = helper.make_graph(
        made, "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass(frozen=True, slots=True)
class Case:
    """A residual network of ``nodes``, one with weights of a ``width``, or a step of the decoder.

    The field that is not 0 or empty says which; the decoder's is the text of the page.
    """

    granularity: str
    nodes: int = 0
    width: int = 0
    step: str = ""

    def save(self, path: Path) -> str:
        """Write the model to a file; returns the shapes of its inputs as JSON."""
        if not self.step:
            onnx.save(layers(self.nodes or WIDE_NODES, self.width or WIDTH), path)
            return "{}"
        onnx.save(decoder(Architecture()), path)
        return json.dumps(shapes(Architecture(), *STEPS[self.step]))


@dataclass(frozen=True, slots=True)
class Row:
    """Reading and decomposing a model; the runtime alone takes ``runtime_s`` for the same graph."""

    case: Case
    nodes: int
    bricks: int
    weight_bytes: int
    read_s: float
    decompose_s: float
    peak_bytes: int
    runtime_s: float | None = None

    @property
    def cells(self) -> list[str]:
        """The figures of the table."""
        return [
            self.case.granularity, str(self.nodes), str(self.bricks),
            f"{self.weight_bytes / 1e9:.2f}", f"{self.read_s:.2f}", f"{self.decompose_s:.2f}",
            f"{self.peak_bytes / 1e6:.0f}",
        ]  # fmt: skip


def cases() -> list[Case]:
    """More and more nodes, larger and larger weights, and a large decoder."""
    return [
        *(Case(granularity, nodes) for granularity in GRANULARITIES for nodes in NODES),
        *(Case("executed", width=width) for width in WIDTHS),
        *(Case(granularity, step=step) for step in STEPS for granularity in GRANULARITIES),
    ]


def run(case: Case, run: Run) -> Row:
    """Medians over some processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        given = case.save(path)
        found = []
        for number in range(REPEATS):
            cache = str(Path(folder) / str(number))
            found.append(_printed(DECOMPOSE, str(path), case.granularity, cache, given))
        middle = {name: median(each[name] for each in found) for name in found[0]}
        runtime_s = None
        if case.granularity == "executed" and case.nodes:
            runtime_s = median(_printed(RUNTIME, str(path))["runtime_s"] for _ in range(REPEATS))
    counts = (int(middle[name]) for name in ("nodes", "bricks", "weight_bytes"))
    nodes, bricks, weight_bytes = counts
    return Row(
        case, nodes, bricks, weight_bytes, middle["read_s"], middle["decompose_s"],
        int(middle["peak_bytes"]), runtime_s,
    )  # fmt: skip


def _printed(script: str, *arguments: str) -> dict[str, float]:
    """Run a script in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    facts: dict[str, float] = json.loads(done.stdout)
    return facts


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables, and the growth of times with nodes."""
    nodes = [row for row in results.rows if row.case.nodes]
    weights = [row for row in results.rows if row.case.width]
    steps = [row for row in results.rows if row.case.step]
    return {
        "date": results.about.date,
        "system": results.about.system,
        "powers": _powers(nodes),
        "by_nodes": _table((f"{row.case.nodes} nodes", row) for row in nodes),
        "by_weights": _table(
            (f"{WIDE_NODES} nodes, {row.case.width} wide", row) for row in weights
        ),
        "by_step": _table((row.case.step, row) for row in steps),
    }


def _powers(rows: Sequence[Row]) -> str:
    """How times grow with nodes, over the upper half of them."""
    times_s = {
        granularity: {
            row.case.nodes: row.read_s + row.decompose_s
            for row in rows
            if row.case.granularity == granularity
        }
        for granularity in GRANULARITIES
    }
    runtime_s = {row.case.nodes: row.runtime_s for row in rows if row.runtime_s is not None}
    few, many = NODES[len(NODES) // 2 - 1], NODES[-1]
    if len(runtime_s) < len(NODES):
        return ""
    slopes = ", ".join(f"{_slope(of):.2f} at `{name}`" for name, of in times_s.items())
    return (
        f"From {few} to {many} nodes, the time to read and decompose a model grows with its nodes"
        f" to the power of {slopes} ([granularities](../docs/glossary.md#granularity)). At"
        " `executed`, this includes the runtime's own session and optimisations, which alone take"
        f" {runtime_s[few]:.2f} s for {few} nodes and {runtime_s[many]:.2f} s for {many}: a power"
        f" of {_slope(runtime_s):.2f}."
    )


def _slope(times_s: dict[int, float]) -> float:
    """The slope between logarithms of nodes and of seconds, over the upper half."""
    ordered = sorted(times_s.items())
    (few, before), (many, after) = ordered[len(ordered) // 2 - 1], ordered[-1]
    return math.log(after / before) / math.log(many / few)


def _table(rows: Iterable[tuple[str, Row]]) -> str:
    head = ["model", "granularity", "nodes", "bricks", "weights, GB", "read, s", "decompose, s",
            "memory, MB"]  # fmt: skip
    return table(head, ([name, *row.cells] for name, row in rows), "ll")


BENCHMARKS = (Benchmark("growth", "growth.md", Row, cases, run, parts),)
