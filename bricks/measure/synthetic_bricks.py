"""Makes bricks of one ONNX node on 32-bit floats, which show how fast a machine is.

Must not know how their latencies are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from bricks.decompose.identity import Cutter
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

Shape = Sequence[int]


def product(rows: int, terms: int, columns: int) -> Brick:
    """A product of a (rows, terms) matrix with (terms, columns) weights."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return synthetic_brick(node, [(rows, terms)], (terms, columns))


def convolution(read: int, written: int, side: int, taps: int, **attributes: Any) -> Brick:
    """A convolution of taps×taps over ``side``×``side`` pixels, from ``read`` to ``written``.

    These are channels. ``attributes`` are further ones of the node, such as ``group``.
    """
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"],
        kernel_shape=[taps, taps], pads=[taps // 2] * 4, **attributes,
    )  # fmt: skip
    weight = (written, read // attributes.get("group", 1), taps, taps)
    return synthetic_brick(node, [(1, read, side, side)], weight)


def synthetic_brick(node: NodeProto, inputs: Sequence[Shape], weight: Shape | None = None) -> Brick:
    """The brick of ``node``, with its inputs' shapes, and that of its weight, which comes last."""
    weights = [] if weight is None else [_weight(node.input[-1], weight)]
    names = node.input if weight is None else node.input[:-1]
    infos = [_info(name, shape) for name, shape in zip(names, inputs, strict=True)]
    # Inference gives the shape of the output, which follows from the others.
    graph = helper.make_graph([node], "synthetic", infos, [_info(node.output[0], None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Cutter(graph_of(shape_inference.infer_shapes(model))).cut((0,)).brick


def _weight(name: str, shape: Shape) -> TensorProto:
    weight = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    weight.data_location = TensorProto.EXTERNAL
    return weight


def _info(name: str, shape: Shape | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
