"""What a busy sibling costs: the other hyperthread of a core, which on a cloud host is another's.

    python benchmarks/siblings.py --seconds 60

Runs workloads in turn, with one thread, and divides the medians of those rounds in which a chain of
trivial nodes was slow by the medians of those in which it was fast.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bricks.backends import create
from bricks.backends.base import Binding, BoundModel
from bricks.backends.onnx_instruments.models import chain, reference

# The chain was slow if it took this much longer than its 5th percentile, and fast below the second.
SLOW, FAST = 1.3, 1.1
WATCHED = "chain of 200 nodes"
RUNS = 5


def one_node(operator: str, shape: list[int], weight: list[int] | None = None) -> onnx.ModelProto:
    """A model of one node, with inputs and outputs of ``shape``."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    weights = []
    if weight is not None:
        array = np.random.default_rng(0).standard_normal(weight, np.float32)
        weights = [numpy_helper.from_array(array, "w")]
    node = helper.make_node(operator, ["x", *(w.name for w in weights)], ["y"])
    if operator == "Conv":
        node.attribute.append(helper.make_attribute("pads", [1] * 4))
    graph = helper.make_graph([node], operator, values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def workloads() -> dict[str, BoundModel]:
    """The workloads by name, loaded in this process."""
    backend = create("onnxruntime", threads=1, seed=0)
    models = {
        "reference": reference(),
        "chain of 1 node": chain(1),
        WATCHED: chain(200),
        "Conv 16×14×14": one_node("Conv", [1, 16, 14, 14], [16, 16, 3, 3]),
        "Conv 64×56×56": one_node("Conv", [1, 64, 56, 56], [64, 64, 3, 3]),
        "Exp of 1 Mi": one_node("Exp", [1 << 20]),
        "Relu of 4 Mi": one_node("Relu", [1 << 22]),
    }
    memory, alone = np.zeros(0, np.uint8), Binding((None,), (None,))
    return {
        name: backend.load(model, key=name, optimize=False).bind(alone, memory)
        for name, model in models.items()
    }


def shortest_s(bound: BoundModel) -> float:
    """The shortest of several runs in seconds: one that no other process has interrupted."""
    return min(bound.sample().host_s for _ in range(RUNS))


def main() -> None:
    """Run the workloads in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    every = workloads()
    rounds = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rounds.append([shortest_s(bound) for bound in every.values()])
    taken = np.array(rounds)
    watched = taken[:, list(every).index(WATCHED)]
    base_s = np.percentile(watched, 5)
    slow, fast = watched > SLOW * base_s, watched < FAST * base_s
    print(f"{len(taken)} rounds, a busy sibling in {slow.mean():.0%}")
    if not slow.any():
        return
    for name, slow_s, fast_s in zip(
        every, np.median(taken[slow], axis=0), np.median(taken[fast], axis=0), strict=True
    ):
        print(f"{name:20} {1e6 * fast_s:8.1f} µs alone   {slow_s / fast_s:.2f} × with a sibling")


if __name__ == "__main__":
    main()
