"""A brick of one call, made from the call and the types of its tensors, without a program."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import TensorProto, ValueInfoProto, helper

from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.graph.form import DOMAIN
from bricks.graph.model import Model
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.program import Call
    from bricks.graph.tensor import TensorType


def single_call(call: Call, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Brick:
    """The brick of ``call`` with tensors of these types; none of its inputs is a weight."""
    reads, writes = _names("i", inputs), _names("o", outputs)
    graph = helper.make_graph(
        [call.node(list(reads), list(writes))],
        call.operator,
        [_value(name, type_) for name, type_ in reads.items()],
        [_value(name, type_) for name, type_ in writes.items()],
    )
    opset = helper.make_opsetid(DOMAIN + call.namespace, 1)
    proto = helper.make_model(graph, opset_imports=[opset])
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    model = Model(call.operator, Path(), skeleton, (), digest)
    (brick,) = build(model, graph_of(proto), Granularity.parse("executed")).bricks.values()
    return brick


def _names(prefix: str, types: Sequence[TensorType]) -> dict[str, TensorType]:
    return {f"{prefix}{at}": type_ for at, type_ in enumerate(types)}


def _value(name: str, type_: TensorType) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(type_.dtype), type_.shape)
