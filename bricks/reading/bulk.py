"""Count the messages in a model before protobuf creates an object for each.

Two bytes of a file can encode a message. Its object takes a hundred times as much memory, and some
microseconds in each pass over the graph. Models far larger than real ones are refused. Must not
know what the messages mean: protobuf's descriptors say which fields hold messages.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import onnx

from bricks.errors import ModelError
from bricks.graph.wire import LENGTH_DELIMITED, MAX_DEPTH, WIRE_ERRORS, fields

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor  # type: ignore[import-untyped]  # has no types

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
