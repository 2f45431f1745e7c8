"""Attention: matrix products and softmax, with the restrictions of lengths and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.operators.normalisation import SOFTMAX
from bricks.operators.operator import (
    FLOAT_BYTES,
    Operator,
    Restriction,
    WeightForm,
    Work,
    first_of,
    index,
    length,
    mask_at,
    names,
    no_workspace,
    quantised,
    require_floats,
)

if TYPE_CHECKING:
    from bricks.operators.node import Node


def _joint_work(node: Node) -> int | None:
    """Joint projection, scores, softmax, weighted sum; None with a past or custom sizes."""
    if node.has(4) or node.numbers("qkv_hidden_sizes"):
        return None
    batch, tokens, width = node.type_at(0).shape
    joint = node.type_at(1).shape[1]
    rows = batch * tokens
    projection = rows * joint * (2 * width + node.has(2))
    scores = 2 * 2 * rows * tokens * (joint // 3)
    return projection + scores + SOFTMAX * rows * tokens * node.number("num_heads")


def _heads_work(node: Node) -> int | None:
    """Scores, softmax, weighted sum; None with a bias or past, or a joint query, key or value."""
    if any(node.has(port) for port in (3, 6, 7)) or not (node.has(1) and node.has(2)):
        return None
    shapes = [node.type_at(port).shape for port in range(3)]
    if any(len(shape) != 3 for shape in shapes):
        return None
    (batch, rows, width), (_, tokens, _), (_, _, value_width) = shapes
    products = 2 * batch * rows * tokens * (width + value_width)
    return products + SOFTMAX * batch * rows * tokens * node.number("num_heads")


def _grouped_work(node: Node) -> int | None:
    """Scores of new tokens with all, softmax, weighted sum; None without a past."""
    if not node.has(3) or len(node.type_at(0).shape) != 3:
        return None
    batch, rows, _ = node.type_at(0).shape
    _, _, cached, head = node.type_at(3).shape
    scores = batch * node.number("num_heads") * rows * (cached + rows)
    return scores * (2 * 2 * head + SOFTMAX)


def _fused_work(products: int, query: int = 0) -> Work:
    """Return the work of a number of ``products``; the key's port follows the ``query``'s."""

    def work(node: Node) -> int:
        queries, keys = node.type_at(query), node.type_at(query + 1)
        return 2 * products * queries.elements * keys.shape[-2]

    return work


def _require(node: Node, floats: int, absent: Sequence[int], unsupported: str) -> None:
    """Raise ``LookupError`` unless the first inputs are floats, and ``absent`` ports are empty.

    ``unsupported`` describes the inputs at ``absent`` ports.
    """
    require_floats(node, floats)
    if any(node.has(port) for port in absent):
        raise LookupError(f"attention with {unsupported}")


def _joint_workspace(node: Node, threads: int) -> Sequence[int]:
    """Queries, keys, values, the scores, and the result before heads are put together."""
    _require(node, 2, (4, 5, 6), "a past")
    batch, tokens, _ = node.tensor_at(0).shape
    projected = batch * tokens * node.tensor_at(1).shape[1]
    scores = batch * node.number("num_heads") * tokens * tokens
    return (projected * FLOAT_BYTES, scores * FLOAT_BYTES, node.output.size_bytes)


def _scores(node: Node, threads: int) -> Sequence[int]:
    """The scores of the standard operator, whose inputs are divided into heads already."""
    _require(node, 3, (4, 5, 6), "a past")
    batch, heads, tokens, _ = node.tensor_at(0).shape
    return (batch * heads * tokens * node.tensor_at(1).shape[2] * FLOAT_BYTES,)


def _transposed_heads(node: Node, threads: int) -> Sequence[int]:
    """Queries, keys and values, transposed; scores are computed in blocks."""
    _require(node, 3, range(4, len(node.proto.input)), "a mask or a past")
    return [node.tensor_at(port).size_bytes for port in (0, 1, 2)]


def _grouped_lengths(node: Node, port: int) -> Restriction | None:
    query, past = node.shape_at(0), node.shape_at(3)
    if port not in (5, 6) or query is None or len(query) != 3:
        return None
    total = query[1] + (past[2] if past is not None and len(past) == 4 else 0)
    return length(node, total - 1 if port == 5 else total)


def _lengths(node: Node, port: int) -> Restriction | None:
    data, lengths = node.shape_at(0), node.shape_at(3)
    if port != 3 or not data or lengths is None:
        return None
    return length(node, data[1]) if len(lengths) == 1 and len(data) == 3 else None


def _positions(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(1)
    return index(node, 0, max(1, shape[0])) if port == 3 and shape else None


def _own_positions(node: Node, port: int) -> Restriction | None:
    """Positions of ONNX Runtime's operator, which are its second input.

    A single position is the start of the sequence; the rest of the sequence must fit as well.
    """
    shape, data, positions = node.shape_at(2), node.shape_at(0), node.shape_at(1)
    if port != 1 or not shape:
        return None
    rest = data[-2] - 1 if data and len(data) > 1 and positions == (1,) else 0
    return index(node, 0, max(1, shape[0] - rest))


OPERATORS = (
    Operator(onnx=names("Attention"), restrict=mask_at(3), workspace=_scores),
    Operator(
        onnx=names("com.microsoft.Attention"),
        work=_joint_work,
        restrict=first_of(_lengths, mask_at(3)),
        workspace=_joint_workspace,
        weights=WeightForm.REARRANGED,
    ),
    Operator(
        onnx=names("com.microsoft.MultiHeadAttention"),
        work=_heads_work,
        restrict=mask_at(4),
        workspace=_transposed_heads,
    ),
    Operator(
        onnx=names("com.microsoft.GroupQueryAttention"),
        work=_grouped_work,
        restrict=_grouped_lengths,
    ),
    Operator(onnx=names("com.microsoft.QAttention"), restrict=quantised),
    Operator(
        aten=names("_scaled_dot_product_flash_attention_for_cpu"), work=_fused_work(products=2)
    ),
    # The gradient comes before the query.
    Operator(
        aten=names("_scaled_dot_product_flash_attention_for_cpu_backward"),
        work=_fused_work(products=5, query=1),
    ),
    Operator(onnx=names("RotaryEmbedding"), restrict=_positions),
    Operator(
        onnx=names("com.microsoft.RotaryEmbedding"), restrict=_own_positions, workspace=no_workspace
    ),
)
