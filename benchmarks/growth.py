"""How does decomposing grow with a model? Graphs of 100 to 20,000 nodes, and a large decoder.

    .venv/bin/python benchmarks/growth.py

Writes docs/growth.md. Each row is a process of its own with nothing cached; reading and
decomposing are timed inside of it, and memory is the peak of the process and of its worker
together. Run nothing else meanwhile.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import onnx
from onnx import TensorProto, helper

from bricks import Bench

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "growth.md"
sys.path.insert(0, str(ROOT / "tests" / "support"))
from decoder import Architecture, decoder, shapes  # noqa: E402  # found by the path above

NODES = (100, 300, 1000, 3000, 10_000, 20_000)
GRANULARITIES = ("executed", "1", "5")
REPEATS = 3
# Nodes of a layer: product, bias, activation, product, sum.
LAYER = 5

ONE = """
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

# Times the runtime alone: making a session of the graph, all optimisations included.
RUNTIME = """
import json, sys, time
from bricks import read_model
from bricks.backends import create
from bricks.backends.onnxruntime.optimized import save_optimized
from bricks.backends.onnxruntime.standins import StandIns
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model
create("onnxruntime", threads=1, seed=0)
proto, stand_ins = parse_model(read_model(sys.argv[1]).skeleton), StandIns(Pool(0))
started = time.perf_counter()
save_optimized(proto, stand_ins, "all")
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


def decomposed(path: Path, granularity: str, given: dict[str, Any]) -> dict[str, float]:
    """Medians over some processes."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            runs.append(run(ONE, str(path), granularity, cache, json.dumps(given)))
    return {key: median(each[key] for each in runs) for key in runs[0]}


def run(script: str, *arguments: str) -> dict[str, float]:
    """Run a script in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    facts: dict[str, float] = json.loads(done.stdout)
    return facts


def row(name: str, granularity: str, facts: dict[str, float]) -> str:
    """A row of the table."""
    return (
        f"| {name} | {granularity} | {facts['nodes']:.0f} | {facts['bricks']:.0f}"
        f" | {facts['weight_bytes'] / 1e9:.2f} | {facts['read_s']:.2f}"
        f" | {facts['decompose_s']:.2f} | {facts['peak_bytes'] / 1e6:.0f} |"
    )


def exponent(times: dict[int, float]) -> float:
    """How time grows with nodes: the slope between logarithms, over the upper half."""
    (few, before), (many, after) = (sorted(times.items())[i] for i in (len(times) // 2 - 1, -1))
    return math.log(after / before) / math.log(many / few)


HEAD = (
    "| model | granularity | nodes | bricks | weights, GB | read, s | decompose, s | memory, MB |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
)


def by_nodes(path: Path) -> tuple[list[str], str]:
    """The rows for graphs of more and more nodes, and what follows from them."""
    rows: list[str] = []
    grown: dict[str, dict[int, float]] = {}
    for granularity in GRANULARITIES:
        for nodes in NODES:
            onnx.save(layers(nodes, 64), path)
            facts = decomposed(path, granularity, {})
            grown.setdefault(granularity, {})[nodes] = facts["read_s"] + facts["decompose_s"]
            rows.append(row(f"{nodes} nodes", granularity, facts))
            if granularity == "executed":
                alone = median(run(RUNTIME, str(path))["runtime_s"] for _ in range(REPEATS))
                grown.setdefault("runtime", {})[nodes] = alone
    runtime = grown.pop("runtime")
    slopes = ", ".join(f"{exponent(times):.2f} at `{g}`" for g, times in grown.items())
    upper = NODES[len(NODES) // 2 - 1]
    return rows, (
        f"From {upper} to {NODES[-1]} nodes, the time to read and decompose a model grows with its"
        f" nodes to the power of {slopes} ([granularities](glossary.md#granularity))."
        " At `executed`, this includes the runtime's own session and optimisations, which alone"
        f" take {runtime[upper]:.2f} s for {upper} nodes and {runtime[NODES[-1]]:.2f} s for"
        f" {NODES[-1]}: a power of {exponent(runtime):.2f}."
        " The size of the weights does not matter, because none is read."
    )


def by_weights(path: Path) -> Iterator[str]:
    """Rows for graphs of larger and larger weights."""
    for width in (64, 1024, 4096):
        onnx.save(layers(1000, width), path)
        yield row(f"1000 nodes, {width} wide", "executed", decomposed(path, "executed", {}))


def of_decoder(path: Path) -> Iterator[str]:
    """Rows for a large decoder, a token at a time and many at once."""
    of = Architecture()
    onnx.save(decoder(of), path)
    for name, tokens, past in (("decode, 512 before", 1, 512), ("prefill of 512", 512, 1)):
        for granularity in GRANULARITIES:
            facts = decomposed(path, granularity, shapes(of, tokens, past))
            yield row(name, granularity, facts)


def main() -> None:
    """Measure, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        with Bench(Path(name) / "cache") as bench:
            system = bench.target.system.name
        path = Path(name) / "layers.onnx"
        rows, conclusion = by_nodes(path)
        lines = [
            "# How decomposition scales",
            "",
            f"Written by `benchmarks/growth.py` on {datetime.now(UTC).date()}, on {system}.",
            "",
            conclusion,
            "",
            f"Each row is the median of {REPEATS} processes with an empty cache. Memory is the peak"
            " of the process and of its worker together, 200 MB of it for the interpreters and"
            " libraries. The file of the weights does not exist.",
            "",
            "    .venv/bin/python benchmarks/growth.py",
            *("", "## By number of nodes", "", *HEAD, *rows),
            *("", "## By size of weights", "", *HEAD, *by_weights(path)),
            *("", "## A decoder of 7 billion parameters", "", *HEAD, *of_decoder(path)),
            "",
        ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
