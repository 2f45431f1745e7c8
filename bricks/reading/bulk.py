"""Count the messages in a model before protobuf creates an object for each.

Two bytes of a file can encode a message, which takes a hundred times as much memory, and some
microseconds in each pass over the graph. Models far larger than real ones are refused. Must not
know what the messages mean: protobuf's descriptors say which fields hold messages.
"""

from __future__ import annotations

from functools import cache

import onnx
from google.protobuf.descriptor import Descriptor  # type: ignore[import-untyped]  # has no types

from bricks.errors import ModelError
from bricks.graph.wire import DAMAGED, LENGTH_DELIMITED, MAX_DEPTH, fields

# Large real models have some ten thousand nodes, with a few attributes each, over which many passes
# iterate. They have more of other messages (types, dimensions, notes), which cost less.
MAX_NODES, MAX_PARTS = 250_000, 2_000_000
_GONE_OVER = frozenset({"NodeProto", "AttributeProto", "TensorProto"})
# A smaller model cannot exceed the limits.
SMALL_BYTES = 2 * MAX_NODES


def check_bulk(skeleton: bytes, file: str) -> None:
    """Raise :class:`ModelError` for a model of more than MAX_NODES or MAX_PARTS messages."""
    if len(skeleton) <= SMALL_BYTES:
        return
    try:
        _count(skeleton, file)
    except DAMAGED as exc:
        raise ModelError(f"{file} is not an ONNX model: {exc}") from exc


def _count(skeleton: bytes, file: str) -> None:
    # Depth first, because a list of pending messages could grow as large as the model.
    walks = [(_known(onnx.ModelProto.DESCRIPTOR), fields(skeleton, 0, len(skeleton)))]
    nodes = parts = 0
    while walks:
        known, walk = walks[-1]
        for field in walk:
            kind = known.get(field.number)
            if kind is None or field.wire_type != LENGTH_DELIMITED:
                continue
            parts += 1
            nodes += kind.name in _GONE_OVER
            if nodes > MAX_NODES or parts > MAX_PARTS:
                raise ModelError(
                    f"{file} is made of more than {MAX_NODES} nodes, attributes and tensors, or"
                    f" {MAX_PARTS} parts of any kind: refused; models are far smaller"
                )
            if field.end > field.body:
                walks.append((_known(kind), fields(skeleton, field.body, field.end)))
                break
        else:
            walks.pop()
        if len(walks) > MAX_DEPTH:
            raise ModelError(f"{file} is nested more than {MAX_DEPTH} deep: refused")


@cache
def _known(kind: Descriptor) -> dict[int, Descriptor]:
    """The fields of a message type that hold messages, with the types of the messages."""
    held = ((each.number, each.message_type) for each in kind.fields)
    return {number: inner for number, inner in held if inner is not None}
