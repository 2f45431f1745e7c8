"""Small random models whose time depends on values: operators that select, sort, search or repeat.

What these read comes from a matrix product, a softmax or a comparison, as in models. A seed and a
number make one model, always the same. Must not know how models are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FEATURES = 32
_OPSETS = (("", 17), ("ai.onnx.ml", 3))


@dataclass
class _Net:
    """A graph in the making, and the random numbers that decide it."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    held: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def put(
        self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: object
    ) -> str:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]

    def hold(self, values: object, dtype: str) -> str:
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def give(self, name: str, dtype: int) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, None))

    def choose(self, *options: int) -> int:
        return int(options[self.rng.integers(len(options))])

    def numbers(self, columns: int) -> str:
        """Rows of so many activations, of one distribution or another."""
        scale = float(10 ** self.rng.uniform(-1, 1))
        weight = self.rng.standard_normal((_FEATURES, columns)) * scale / _FEATURES**0.5
        made = self.put("MatMul", "x", self.hold(weight, "f4"))
        kind = self.choose(*range(6))
        if kind == 0:
            return self.put("Softmax", made, axis=-1)
        if kind in (1, 2, 3):
            return self.put(("Relu", "Sigmoid", "Tanh")[kind - 1], made)
        return made

    def integers(self, columns: int, below: int) -> str:
        """Rows of so many indices below ``below``."""
        share = self.put("Sigmoid", self.numbers(columns))
        wide = self.put("Mul", share, self.hold(below * self.rng.uniform(0.1, 1), "f4"))
        kept = self.put("Clip", wide, self.hold(0, "f4"), self.hold(below - 1, "f4"))
        return self.put("Cast", kept, to=TensorProto.INT64)

    def mask(self, columns: int) -> str:
        """Rows of so many booleans, of which a share is true."""
        numbers = self.put("Sigmoid", self.numbers(columns))
        threshold = self.hold(self.rng.uniform(0.3, 0.7), "f4")
        return self.put(("Greater", "Less")[self.choose(0, 1)], numbers, threshold)

    def flat(self, name: str) -> str:
        return self.put("Reshape", name, self.hold([-1], "i8"))


def _non_zero(net: _Net) -> None:
    net.give(net.put("NonZero", net.mask(net.choose(64, 256, 1024))), TensorProto.INT64)


def _non_zero_numbers(net: _Net) -> None:
    cut = net.put("Relu", net.put("Sub", net.numbers(256), net.hold(net.rng.uniform(0, 0.5), "f4")))
    net.give(net.put("NonZero", cut), TensorProto.INT64)


def _compress(net: _Net) -> None:
    columns = net.choose(64, 256)
    chosen = net.flat(net.mask(columns))
    net.give(net.put("Compress", net.flat(net.numbers(columns)), chosen), TensorProto.FLOAT)


def _unique(net: _Net) -> None:
    values = net.integers(net.choose(16, 64), net.choose(4, 300, 20_000))
    net.give(net.put("Unique", values, sorted=net.choose(0, 1)), TensorProto.INT64)


def _unique_numbers(net: _Net) -> None:
    net.give(net.put("Unique", net.numbers(net.choose(16, 64)), sorted=1), TensorProto.FLOAT)


def _top_k(net: _Net) -> None:
    columns = net.choose(64, 1000)
    k = net.hold([net.choose(1, 5, columns // 2)], "i8")
    net.give(net.put("TopK", net.numbers(columns), k, outputs=2, axis=-1), TensorProto.FLOAT)


def _suppression(net: _Net) -> None:
    boxes, classes = net.choose(200, 1500), net.choose(1, 5)
    x = net.put("Slice", "x", net.hold([0], "i8"), net.hold([1], "i8"))
    rows = net.put(
        "MatMul", x, net.hold(net.rng.standard_normal((_FEATURES, 4 * boxes)) * 0.3, "f4")
    )
    rows = net.put("Reshape", rows, net.hold([1, boxes, 4], "i8"))
    place = net.put("Slice", rows, net.hold([0], "i8"), net.hold([2], "i8"), net.hold([2], "i8"))
    place = net.put("Mul", place, net.hold(10 ** net.rng.uniform(-0.5, 1), "f4"))
    size = net.put("Slice", rows, net.hold([2], "i8"), net.hold([4], "i8"), net.hold([2], "i8"))
    end = net.put("Add", place, net.put("Exp", size))
    scores = net.rng.standard_normal((_FEATURES, classes * boxes)) * 0.3
    scores = net.put("Sigmoid", net.put("MatMul", x, net.hold(scores, "f4")))
    scores = net.put("Reshape", scores, net.hold([1, classes, boxes], "i8"))
    bounds = (
        net.hold([net.choose(20, 200, 2000)], "i8"),
        net.hold([net.rng.uniform(0.2, 0.9)], "f4"),
        net.hold([net.rng.uniform(0.2, 0.6)], "f4"),
    )
    corners = net.put("Concat", place, end, axis=2)
    net.give(net.put("NonMaxSuppression", corners, scores, *bounds), TensorProto.INT64)


def _loop(net: _Net) -> None:
    width = net.choose(64, 256)
    state = net.put("ReduceMean", net.numbers(width), axes=[0], keepdims=1)
    weight = net.rng.standard_normal((width, width)) * net.rng.uniform(0.5, 0.95) / width**0.5
    w, least = net.hold(weight, "f4"), net.hold(10 ** net.rng.uniform(-5, -2), "f4")
    n = helper.make_node
    body = helper.make_graph(
        [
            n("MatMul", ["h", w], ["m"]),
            n("Tanh", ["m"], ["next"]),
            n("ReduceMax", ["next"], ["most"], keepdims=0),
            n("Greater", ["most", least], ["go"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, width]),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, width]),
        ],
    )
    ports = (net.hold(500, "i8"), net.hold(True, "?"), state)
    net.give(net.put("Loop", *ports, body=body), TensorProto.FLOAT)


def _gather(net: _Net) -> None:
    rows, width = net.choose(2000, 100_000), net.choose(16, 64)
    table = net.hold(net.rng.standard_normal((rows, width)), "f4")
    net.give(net.put("Gather", table, net.flat(net.integers(16, rows))), TensorProto.FLOAT)


def _gather_sorted(net: _Net) -> None:
    columns = net.choose(256, 1024)
    numbers = net.numbers(columns)
    first = net.put("TopK", numbers, net.hold([columns // 4], "i8"), outputs=2, axis=-1)
    places = first.replace("_0", "_1")
    net.give(net.put("GatherElements", numbers, places, axis=1), TensorProto.FLOAT)


def _scatter(net: _Net) -> None:
    rows = net.choose(1000, 50_000)
    table = net.hold(np.zeros((rows, 16)), "f4")
    places = net.put("Unsqueeze", net.flat(net.integers(1, rows)), net.hold([-1], "i8"))
    net.give(net.put("ScatterND", table, places, net.numbers(16)), TensorProto.FLOAT)


def _selected_rows(net: _Net) -> None:
    numbers = net.numbers(64)
    chosen = net.put(
        "ReduceMax", net.put("Cast", net.mask(4), to=TensorProto.FLOAT), axes=[1], keepdims=0
    )
    places = net.flat(net.put("NonZero", chosen))
    net.give(net.put("Gather", numbers, places), TensorProto.FLOAT)


def _trees(net: _Net) -> None:
    columns, depth, trees = 16, net.choose(4, 8), net.choose(20, 100)
    many = 2**depth - 1
    inner = np.arange(2 ** (depth + 1) - 1) < many
    per = inner.size
    ids = np.tile(np.arange(per), trees)
    below = np.tile(inner, trees)
    attributes = {
        "nodes_treeids": np.repeat(np.arange(trees), per),
        "nodes_nodeids": ids,
        "nodes_featureids": net.rng.integers(0, columns, ids.size),
        "nodes_truenodeids": np.where(below, 2 * ids + 1, 0),
        "nodes_falsenodeids": np.where(below, 2 * ids + 2, 0),
    }
    leaves = np.flatnonzero(~below)
    node = {name: values.tolist() for name, values in attributes.items()}
    made = net.put(
        "TreeEnsembleRegressor",
        net.numbers(columns),
        domain="ai.onnx.ml",
        **node,
        nodes_values=np.where(below, net.rng.normal(0, 1, ids.size), 0).tolist(),
        nodes_modes=["BRANCH_LEQ" if each else "LEAF" for each in below],
        target_treeids=attributes["nodes_treeids"][leaves].tolist(),
        target_nodeids=ids[leaves].tolist(),
        target_ids=[0] * leaves.size,
        target_weights=net.rng.standard_normal(leaves.size).tolist(),
        n_targets=1,
    )
    net.give(made, TensorProto.FLOAT)


def _power(net: _Net) -> None:
    base = net.put("Abs", net.numbers(64))
    net.give(net.put("Pow", base, net.hold(net.rng.uniform(0.2, 3.7), "f4")), TensorProto.FLOAT)


def _remainder(net: _Net) -> None:
    scaled = net.put("Mul", net.numbers(64), net.hold(10 ** net.rng.uniform(0, 4), "f4"))
    net.give(
        net.put("Mod", scaled, net.hold(net.rng.uniform(0.1, 2), "f4"), fmod=1), TensorProto.FLOAT
    )


def _slopes(net: _Net) -> None:
    moved = net.put("Add", net.numbers(256), net.hold(net.rng.uniform(-1, 1), "f4"))
    net.give(net.put("PRelu", moved, net.hold([0.1], "f4")), TensorProto.FLOAT)


def _choice(net: _Net) -> None:
    chosen = net.put("Where", net.mask(256), net.numbers(256), net.hold(-1e4, "f4"))
    net.give(net.put("Softmax", chosen, axis=-1), TensorProto.FLOAT)


KINDS: dict[str, Callable[[_Net], None]] = {
    made.__name__.strip("_"): made
    for made in (
        _non_zero, _non_zero_numbers, _compress, _unique, _unique_numbers, _top_k, _suppression,
        _loop, _gather, _gather_sorted, _scatter, _selected_rows, _trees, _power, _remainder,
        _slopes, _choice,
    )
}  # fmt: skip


def value_model(seed: int, number: int) -> tuple[str, onnx.ModelProto]:
    """The name and the model of this number."""
    rng = np.random.default_rng((seed, number))
    net = _Net(rng)
    kind = list(KINDS)[number % len(KINDS)]
    rows = net.choose(256, 1024, 4096)
    KINDS[kind](net)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, _FEATURES])
    graph = helper.make_graph(net.nodes, kind, [x], net.outputs, net.held)
    opsets = [helper.make_opsetid(*opset) for opset in _OPSETS]
    return f"{kind}_{number}", helper.make_model(graph, opset_imports=opsets, ir_version=8)
