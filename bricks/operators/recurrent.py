"""Recurrent layers: only their matrix products are counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.operators.operator import Operator, WeightForm, Work, Workspace, names
from bricks.operators.restrictions import Restriction, length

if TYPE_CHECKING:
    from bricks.operators.node import Node

_FLOAT_BYTES = 4


def _work(gates: int) -> Work:
    """Matrix products of all steps, directions and gates."""

    def work(node: Node) -> int:
        steps, batch, _ = node.type_at(0).shape
        directions, rows, width = node.type_at(1).shape
        hidden = rows // gates
        return 2 * steps * batch * directions * rows * (width + hidden)

    return work


def _layer_work(node: Node) -> int:
    """Both weights at each position of the sequence."""
    positions = math.prod(node.type_at(0).shape[:-1])
    return 2 * positions * (node.type_at(1).elements + node.type_at(2).elements)


def _require_floats(node: Node) -> None:
    if any(node.tensor_at(port).dtype != "FLOAT" for port in (0, 1)):
        raise LookupError(f"{node.operator} of other types than float")


def _gates(gates: int) -> Workspace:
    """Return a rule: gates of all steps by direction; if backward, reversed input and output."""

    def workspace(node: Node, threads: int) -> Sequence[int]:
        _require_floats(node)
        steps, batch, features = node.tensor_at(0).shape
        hidden = node.number("hidden_size")
        row_bytes = steps * batch * _FLOAT_BYTES
        direction = node.text("direction") or "forward"
        directions = [row_bytes * gates * hidden] * (2 if direction == "bidirectional" else 1)
        reversed_ = [] if direction == "forward" else [row_bytes * features, row_bytes * hidden]
        return [*directions, *reversed_]

    return workspace


def _products(node: Node, threads: int) -> Sequence[int]:
    """The products of all steps with the input; directions take turns."""
    _require_floats(node)
    steps, batch, _ = node.tensor_at(0).shape
    return (steps * batch * node.number("hidden_size") * _FLOAT_BYTES,)


def _lengths(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    if port != 4 or not shape or len(shape) != 3:
        return None
    return length(node, shape[1 if node.number("layout") else 0])


OPERATORS = (
    Operator(
        onnx=names("LSTM"),
        work=_work(gates=4),
        restrict=_lengths,
        workspace=_gates(4),
        weights=WeightForm.REARRANGED,
    ),
    Operator(onnx=names("GRU"), work=_work(gates=3), restrict=_lengths, workspace=_gates(3)),
    Operator(onnx=names("RNN"), work=_work(gates=1), restrict=_lengths, workspace=_products),
    Operator(aten=names("mkldnn_rnn_layer"), work=_layer_work),
)
