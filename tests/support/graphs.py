"""Small graphs for the tests of identity: made at random, disguised, run, judged by networkx."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import networkx as nx
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from bricks.decompose.identity import Cutter, Piece
from bricks.graph.model import Graph
from bricks.graph.types import TensorType

ort.set_default_logger_severity(3)

FLOATS = TensorType("FLOAT", (4, 4))


@dataclass
class Maker:
    """Builds a graph node by node."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)

    def input(self, name: str, kind: TensorType = FLOATS) -> str:
        self.inputs.append(name)
        self.types[name] = kind
        return name

    def initializer(self, name: str, values: np.ndarray) -> str:
        tensor = numpy_helper.from_array(np.asarray(values), name)
        self.initializers[name] = tensor
        dtype = onnx.TensorProto.DataType.Name(tensor.data_type)
        self.types[name] = TensorType(dtype, tuple(tensor.dims))
        return name

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        kinds: Sequence[TensorType] = (FLOATS,),
        **attributes: object,
    ) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        self.types.update(zip((o for o in outputs if o), kinds, strict=False))
        return outputs[0]

    def graph(self, opset: int = 17) -> Graph:
        return Graph(
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            initializers=dict(self.initializers),
            types=dict(self.types),
            opsets={"": opset, "com.microsoft": 1, "com.microsoft.nchwc": 1},
            ir_version=8,
        )


def one_node(
    op: str, *inputs: TensorType | np.ndarray, out: TensorType = FLOATS, **kw: object
) -> Graph:
    """A graph of one node; arrays are initializers, types are inputs."""
    maker = Maker()
    names = [
        maker.input(f"x{i}", each)
        if isinstance(each, TensorType)
        else maker.initializer(f"k{i}", each)
        for i, each in enumerate(inputs)
    ]
    maker.outputs = [maker.node(op, names, ["y"], [out], **kw)]
    return maker.graph()


def adds(pairs: Sequence[tuple[int, int]], *, weights: bool = False) -> Graph:
    """An Add for each pair of sources, which are inputs or weights."""
    maker = Maker()
    for source in sorted({s for pair in pairs for s in pair}):
        if weights:
            maker.initializer(f"x{source}", np.full((4, 4), source, np.float32))
        else:
            maker.input(f"x{source}")
    for i, (a, b) in enumerate(pairs):
        maker.outputs.append(maker.node("Add", [f"x{a}", f"x{b}"], [f"y{i}"]))
    return maker.graph()


def random_graph(seed: int, size: int = 7) -> Graph:
    """A runnable graph on 4x4 matrices: elementwise, MatMul, Split, Concat and Conv."""
    rng, maker = random.Random(seed), Maker()
    values = [maker.input(f"in{i}") for i in range(rng.randint(1, 3))]
    for i in range(rng.randint(1, 3)):
        shift = np.random.default_rng(seed + i).normal(size=(4, 4)).astype(np.float32)
        values.append(maker.initializer(f"k{i}", shift))
    half = TensorType("FLOAT", (2, 4))
    image = TensorType("FLOAT", (1, 1, 4, 4))
    maker.initializer("to image", np.array([1, 1, 4, 4]))
    maker.initializer("to matrix", np.array([4, 4]))
    maker.initializer("kernel", np.full((1, 1, 3, 3), 0.1, np.float32))
    while len(maker.nodes) < size:
        n = len(maker.nodes)
        kind = rng.choice(["unary", "binary", "binary", "split", "conv"])
        a, b = rng.choice(values), rng.choice(values)
        if kind == "unary":
            maker.node(rng.choice(["Relu", "Tanh"]), [a], [f"v{n}"])
        elif kind == "binary":
            maker.node(rng.choice(["Add", "MatMul"]), [a, b], [f"v{n}"])
        elif kind == "split":
            maker.node("Split", [a], [f"p{n}", f"q{n}"], [half, half], axis=0)
            parts = [f"p{n}", f"q{n}"]
            rng.shuffle(parts)
            maker.node("Concat", parts, [f"v{n}"], axis=0)
        else:
            maker.node("Reshape", [a, "to image"], [f"i{n}"], [image])
            pads = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
            maker.node("Conv", [f"i{n}", "kernel"], [f"c{n}"], [image], **pads)
            maker.node("Reshape", [f"c{n}", "to matrix"], [f"v{n}"])
        values.append(f"v{n}")
    read = {name for node in maker.nodes for name in node.input}
    made = [name for node in maker.nodes for name in node.output]
    maker.outputs = [name for name in made if name not in read or rng.random() < 0.2]
    maker.inputs = [name for name in maker.inputs if name in read]
    return maker.graph()


def disguised(graph: Graph, seed: int) -> Graph:
    """The same graph with other names, orders, values of weights, and doc strings."""
    rng = random.Random(seed)
    names = list(graph.types)
    fresh = [f"n{i}" for i in range(len(names))]
    rng.shuffle(fresh)
    rename = dict(zip(names, fresh, strict=True)) | {"": ""}
    nodes = []
    for i in _random_order(graph, rng):
        node = onnx.NodeProto()
        node.CopyFrom(graph.nodes[i])
        node.name, node.doc_string = f"node {rng.random()}", f"{rng.random()}"
        attributes = list(graph.nodes[i].attribute)
        rng.shuffle(attributes)
        del node.attribute[:], node.input[:], node.output[:]
        node.attribute.extend(attributes)
        node.input.extend(rename[n] for n in graph.nodes[i].input)
        node.output.extend(rename[n] for n in graph.nodes[i].output)
        nodes.append(node)
    initializers = {}
    for name, tensor in sorted(graph.initializers.items(), key=lambda _: rng.random()):
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            values = (values + rng.random()).astype(np.float32)
        initializers[rename[name]] = numpy_helper.from_array(values, rename[name])
    outputs = [rename[n] for n in graph.outputs]
    rng.shuffle(outputs)
    return replace(
        graph,
        nodes=tuple(nodes),
        inputs=tuple(sorted(rename[n] for n in graph.inputs)),
        outputs=tuple(outputs),
        initializers=initializers,
        types={rename[n]: t for n, t in graph.types.items()},
    )


def _random_order(graph: Graph, rng: random.Random) -> list[int]:
    """Positions of the nodes in a random topological order."""
    known = set(graph.inputs) | set(graph.initializers) | {""}
    left, order = list(range(len(graph.nodes))), []
    while left:
        ready = [i for i in left if known.issuperset(graph.nodes[i].input)]
        order.append(rng.choice(ready))
        left.remove(order[-1])
        known.update(graph.nodes[order[-1]].output)
    return order


def isomorphic(a: Graph, b: Graph) -> bool:
    """Whether networkx finds the graphs the same, by a description of its own."""
    same: bool = nx.is_isomorphic(
        _described(a),
        _described(b),
        node_match=lambda x, y: x["what"] == y["what"],
        edge_match=lambda x, y: (
            sorted(e["port"] for e in x.values()) == sorted(e["port"] for e in y.values())
        ),
    )
    return same


def _described(graph: Graph) -> nx.MultiDiGraph:
    described = nx.MultiDiGraph()
    read = {name for node in graph.nodes for name in node.input}
    made = {name for node in graph.nodes for name in node.output}
    for name in read | made:
        leaves = name in made and (name in graph.outputs or name not in read)
        tensor = graph.initializers.get(name)
        value = None
        if tensor is not None and tensor.data_type == onnx.TensorProto.INT64:
            value = tuple(numpy_helper.to_array(tensor).tolist())
        what = (str(graph.types[name]), name in made, tensor is not None, leaves, value)
        described.add_node(("value", name), what=what)
    for i, node in enumerate(graph.nodes):
        attributes = sorted(a.SerializeToString() for a in node.attribute)
        described.add_node(i, what=(node.op_type, len(node.input), attributes))
        for port, name in enumerate(node.input):
            described.add_edge(("value", name), i, port=port)
        for port, name in enumerate(node.output):
            described.add_edge(i, ("value", name), port=port)
    return described


def cut(graph: Graph, nodes: Sequence[int]) -> Piece:
    """The one piece made of these nodes."""
    return Cutter(graph).cut(nodes)


def model_of(graph: Graph) -> onnx.ModelProto:
    """The graph as a model that can be run."""

    def info(name: str) -> onnx.ValueInfoProto:
        kind = graph.types[name]
        return helper.make_tensor_value_info(
            name, onnx.TensorProto.DataType.Value(kind.dtype), kind.shape
        )

    proto = helper.make_graph(
        graph.nodes,
        "whole",
        [info(name) for name in graph.inputs],
        [info(name) for name in graph.outputs],
        list(graph.initializers.values()),
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
    return helper.make_model(proto, opset_imports=opsets, ir_version=graph.ir_version)


def run(
    model: bytes, feeds: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The model's outputs in onnxruntime, not optimised."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    values = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in weights.items()}
    options.add_external_initializers(list(values), list(values.values()))
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def outputs_of(piece: Piece, graph: Graph, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The piece's outputs, given the graph's values by name."""
    held = {name: numpy_helper.to_array(tensor) for name, tensor in graph.initializers.items()}
    feeds = dict(zip(piece.brick.inputs, (values[n] for n in piece.inputs), strict=True))
    weights = dict(zip(piece.brick.weights, (held[n] for n in piece.weights), strict=True))
    results = run(piece.brick.model, feeds, weights)
    for result, kind in zip(results, piece.brick.outputs.values(), strict=True):
        assert result.shape == kind.shape
    return results
