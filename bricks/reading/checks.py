"""Checks of a model from a file or from another host, before anything reads it.

- Bulk: two bytes of a file can encode a message, whose object in protobuf takes a hundred times as
  much memory. Messages are counted before any object is made; protobuf's descriptors say which
  fields hold messages.
- Recorded programs: they are not normalised, since their calls work in place and their order
  counts, and the file states all types, which ONNX could not infer.
- Places of data: in the folder of the model file, or of a link to it.

Must not know what the model computes, nor import PyTorch.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from bricks.errors import ModelError
from bricks.graph.payload import all_tensors, is_referenced, locate, reference
from bricks.graph.program import call_of, is_call, leaves, module_of, origin_of, state_of
from bricks.graph.topology import check_names, label
from bricks.graph.view import graph_of
from bricks.graph.wire import LENGTH_DELIMITED, MAX_DEPTH, WIRE_ERRORS, fields

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor  # type: ignore[import-untyped]  # has no types

    from bricks.graph.model import Graph
    from bricks.graph.types import ValueType

# Large real models have some ten thousand nodes, with a few attributes each, over which many passes
# iterate. Other messages (types, dimensions, metadata) are more frequent, and cost less.
MAX_NODES, MAX_PARTS = 250_000, 2_000_000
_ITERATED = frozenset({"NodeProto", "AttributeProto", "TensorProto"})
# A smaller model cannot exceed the limits.
SMALL_BYTES = 2 * MAX_NODES


def check_bulk(skeleton: bytes, file: str) -> None:
    """Raise :class:`ModelError` for a model of more than MAX_NODES or MAX_PARTS messages."""
    if len(skeleton) <= SMALL_BYTES:
        return
    try:
        _count(skeleton, file)
    except WIRE_ERRORS as exc:
        raise ModelError(f"{file} is not an ONNX model: {exc}") from exc


def _count(skeleton: bytes, file: str) -> None:
    # Depth first, because a list of pending messages could grow as large as the model.
    stack = [(_message_fields(onnx.ModelProto.DESCRIPTOR), fields(skeleton, 0, len(skeleton)))]
    nodes = parts = 0
    while stack:
        inner, remaining = stack[-1]
        for field in remaining:
            kind = inner.get(field.number)
            if kind is None or field.wire_type != LENGTH_DELIMITED:
                continue
            parts += 1
            nodes += kind.name in _ITERATED
            if nodes > MAX_NODES or parts > MAX_PARTS:
                raise ModelError(
                    f"{file} is made of more than {MAX_NODES} nodes, attributes and tensors, or"
                    f" {MAX_PARTS} parts of any kind: refused; models are far smaller"
                )
            if field.end > field.body:
                lists = kind.name == "AttributeProto"
                inside = fields(skeleton, field.body, field.end, lists=lists)
                stack.append((_message_fields(kind), inside))
                break
        else:
            stack.pop()
        if len(stack) > MAX_DEPTH:
            raise ModelError(f"{file} is nested more than {MAX_DEPTH} deep: refused")


@cache
def _message_fields(kind: Descriptor) -> dict[int, Descriptor]:
    """Return the types of the messages in a message of type ``kind``, by field number."""
    types = ((field.number, field.message_type) for field in kind.fields)
    return {number: inner for number, inner in types if inner is not None}


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
        known.update(node.output)
    # The recorded numbers of a call are DOUBLE, of rank 1.
    weights = [
        t.name
        for t in proto.graph.initializer
        if not is_referenced(t) and (t.data_type != onnx.TensorProto.DOUBLE or len(t.dims) != 1)
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


def link_data_folder(graph: onnx.GraphProto, link: Path, folder: Path) -> Path:
    """Return the data folder of a model whose ``link`` points to a file in ``folder``.

    A runtime looks for data next to the link. The data there may be links into ``folder``, as in
    the cache of a hub: then the locations in ``graph`` become the names of files in ``folder``.
    Raises :class:`ModelError` if some data are in one folder and some in the other.
    """
    link_folder, renamed = link.absolute().parent, dict[str, str]()
    tensors = [tensor for tensor in all_tensors(graph) if is_referenced(tensor)]
    locations = {reference(tensor).location for tensor in tensors}
    for location in locations:
        if (link_folder / location).exists():
            data = (link_folder / location).resolve()
            inside = data.is_relative_to(folder)
            renamed[location] = str(data.relative_to(folder)) if inside else ""
    if not all(renamed.values()):
        if any(renamed.get(name) or (folder / name).exists() for name in locations):
            raise ModelError(
                f"{link} is a link, and some of its data are beside the link, some beside the file"
                f" that it leads to, in {folder}: put all data into one folder"
            )
        return link_folder
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed.get(entry.value, entry.value)
    return folder


def check_locations(graph: onnx.GraphProto, folder: Path) -> None:
    """Raise :class:`ModelError` for data outside the model's ``folder``, or behind a link."""
    tensors = (tensor for tensor in all_tensors(graph) if is_referenced(tensor))
    for location in sorted({reference(tensor).location for tensor in tensors}):
        locate(folder, location)
