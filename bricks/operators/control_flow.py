"""Branches, loops and containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.operators.operator import Operator, from_any, names
from bricks.operators.restrictions import shape_at

if TYPE_CHECKING:
    import onnx


def _into_body(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """The body's inputs: count and condition come first in a Loop, a Scan passes on all inputs."""
    for attribute in node.attribute:
        if attribute.name == "body" and port < len(attribute.g.input):
            yield attribute.g.input[port].name


OPERATORS = (
    Operator(onnx=names("If"), restrict=shape_at(0), sized_by_data=True),
    Operator(onnx=names("Loop"), restrict=shape_at(0, 1), passes=_into_body, sized_by_data=True),
    Operator(onnx=names("Scan"), passes=_into_body),
    Operator(onnx=names("SequenceConstruct"), passes=from_any),
    Operator(onnx=names("SequenceAt SplitToSequence"), restrict=shape_at(1), sized_by_data=True),
    Operator(
        onnx=names("OptionalGetElement SequenceErase SequenceInsert StringSplit"),
        sized_by_data=True,
    ),
)
