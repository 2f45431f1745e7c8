"""Check a recorded program that comes from a file or from another host, before anything reads it.

A program is not normalised: its calls work in place, so their order counts, and the file states all
types, which ONNX could not infer. Must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import onnx

from bricks.errors import ModelError
from bricks.graph.payload import is_referenced
from bricks.graph.program import call_of, is_call, leaves, module_of, origin_of, state_of
from bricks.graph.topology import check_names, label
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph


def checked_program(proto: onnx.ModelProto, file: str) -> tuple[tuple[str, ValueType], ...]:
    """Return the inputs of a recorded program, by name; :class:`ModelError` if it is invalid.

    In a valid program every node is a call with arguments that exist, every value has a concrete
    type and a producer before its first use, and only the numbers of calls have values.
    """
    check_names(proto.graph, file)
    graph = graph_of(proto)
    known = {*graph.inputs, *graph.initializers, ""}
    for node in graph.nodes:
        _check_values(node, graph, known, file)
        _check_call(node, file)
        known.update(node.output)
    weights = [
        t.name for t in proto.graph.initializer if not is_referenced(t) and not _is_numbers(t)
    ]
    if weights:
        raise ModelError(
            f"{file}: a recorded program holds no weights, but {weights[0]!r} has values"
        )
    if origin_of(proto) is None:
        raise ModelError(f"{file}: it says of itself neither what it is nor who recorded it")
    state_of(proto)
    module_of(proto)
    return tuple((name, graph.types[name]) for name in graph.inputs)


def _check_values(node: onnx.NodeProto, graph: Graph, known: Collection[str], file: str) -> None:
    """Raise for a node that is no call, or whose values have no type or no producer before."""
    if not is_call(node):
        raise ModelError(f"{file}: {label(node)} is no call, in a recorded program")
    for name in (*node.input, *node.output):
        if name and name not in graph.types:
            raise ModelError(f"{file}: {label(node)} has a value without a type: {name!r}")
    missing = [name for name in node.input if name not in known]
    if missing:
        raise ModelError(
            f"{file}: {label(node)} reads {missing[0]!r}, which no call before it makes: record"
            " the program again"
        )


def _check_call(node: onnx.NodeProto, file: str) -> None:
    """Raise for a call whose arguments or layout refer to tensors that it does not read."""
    try:
        call = call_of(node)
    except ModelError as exc:
        raise ModelError(f"{file}: {exc}") from exc
    tensors = len(node.input)
    parts = leaves(list(call.arguments))
    named = [leaf.get("t", 0) for leaf in parts if isinstance(leaf, dict)]
    if any(not isinstance(k, int) or not 0 <= k < max(tensors, 1) for k in named):
        raise ModelError(f"{file}: {label(node)} has an argument that is none of its inputs")
    if len(call.ports) > tensors or any(a >= tensors for a in call.aliases):
        raise ModelError(f"{file}: {label(node)} lays out more tensors than it has")


def _is_numbers(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor has the recorded numbers of a call: DOUBLE, of rank 1."""
    dims: Sequence[int] = tensor.dims
    return tensor.data_type == onnx.TensorProto.DOUBLE and len(dims) == 1
