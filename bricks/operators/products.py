"""Products of matrices, recurrent layers, and transforms of signals.

2 x outputs x terms of each sum, one more for each output for a bias, one for a fused activation. Of
recurrent layers only the matrix products are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.operators.operator import (
    FLOAT_BYTES,
    Features,
    Loops,
    Operator,
    Restriction,
    Steering,
    WeightForm,
    Work,
    Workspace,
    length,
    names,
    no_workspace,
    quantised,
    quantised_around,
    require_floats,
    shape_at,
)

if TYPE_CHECKING:
    from bricks.operators.node import Node

_PRODUCT = Features(Loops.PRODUCT)


def product(left: int = 0, bias: int | None = None) -> Work:
    """Return the work of a product; ``left`` is the port of its left factor, ``bias`` of a bias."""

    def work(node: Node) -> int | None:
        if node.number("transBatchA") or node.number("transBatchB"):
            return None
        shape = node.type_at(left).shape
        terms = shape[-2] if node.number("transA") and len(shape) > 1 else shape[-1]
        extra = bool(node.text("activation")) + (bias is not None and node.has(bias))
        return (2 * terms + extra) * node.output.elements

    return work


def _einsum(node: Node) -> int | None:
    """One or two operands, each letter once in each, no ellipsis: the product of all sizes."""
    equation = node.text("equation").replace(" ", "")
    terms, _, result = equation.partition("->")
    operands = terms.split(",")
    if "->" not in equation or "." in equation or len(operands) > 2:
        return None
    sizes: dict[str, int] = {}
    for port, letters in enumerate(operands):
        if len(set(letters)) < len(letters):
            return None
        sizes.update(zip(letters, node.type_at(port).shape, strict=True))
    summed = set(sizes) - set(result)
    if len(operands) == 1:
        return math.prod(sizes.values()) if summed else 0
    return (2 if summed else 1) * math.prod(sizes.values())


def _float_workspace(node: Node, threads: int) -> Sequence[int]:
    """No buffer, for the types that have a kernel of their own."""
    if any(node.tensor_at(port).dtype not in ("FLOAT", "DOUBLE") for port in (0, 1)):
        raise LookupError(f"{node.operator} of other types")
    return ()


def _quantised_input(node: Node, threads: int) -> Sequence[int]:
    """The left factor in 8 bits."""
    return (node.tensor_at(0).elements,)


def _sums(node: Node, threads: int) -> Sequence[int]:
    """The result before it is quantised: 32-bit integers."""
    return (4 * node.output.elements,)


# Facts of products of floats.
_FLOAT = Operator(workspace=_float_workspace, features=_PRODUCT)

_PRODUCTS = (
    replace(
        _FLOAT,
        onnx=names("MatMul"),
        aten=names("mm bmm"),
        work=product(),
        weights=WeightForm.PACKED,
    ),
    replace(
        _FLOAT,
        onnx=names("com.microsoft.FusedMatMul"),
        work=product(),
        weights=WeightForm.PACKED_BY_FUSION,
    ),
    replace(_FLOAT, onnx=names("Gemm"), work=product(bias=2), weights=WeightForm.PACKED),
    replace(
        _FLOAT,
        onnx=names("com.microsoft.FusedGemm"),
        work=product(bias=2),
        weights=WeightForm.PACKED_BY_FUSION,
    ),
    Operator(
        onnx=names("com.microsoft.GemmFloat8 com.microsoft.TransposeMatMul"), features=_PRODUCT
    ),
    Operator(
        aten=names("addmm baddbmm"),
        work=product(left=1),
        features=Features(Loops.PRODUCT, operands=(1, 2)),
    ),
    Operator(aten=names("addbmm"), work=product(left=1)),
    Operator(aten=names("mv linear mkldnn_linear"), work=product()),
    Operator(aten=names("dot"), work=lambda node: 2 * node.type_at(0).elements),
    Operator(onnx=names("Einsum"), work=_einsum),
    Operator(
        onnx=names("MatMulInteger"),
        work=product(),
        restrict=quantised_around(3),
        workspace=no_workspace,
        features=_PRODUCT,
    ),
    Operator(
        onnx=names("QLinearMatMul"),
        work=product(),
        restrict=quantised_around(5),
        workspace=_sums,
        features=Features(Loops.PRODUCT, operands=(0, 3)),
    ),
    Operator(
        onnx=names("com.microsoft.QGemm"),
        restrict=quantised_around(5),
        workspace=_sums,
        features=_PRODUCT,
    ),
    Operator(
        onnx=names("com.microsoft.MatMulIntegerToFloat"),
        work=product(bias=6),
        restrict=quantised_around(5),
        workspace=no_workspace,
        features=_PRODUCT,
    ),
    Operator(
        onnx=names("com.microsoft.DynamicQuantizeMatMul"),
        work=product(bias=4),
        restrict=quantised_around(3),
        workspace=_quantised_input,
        features=_PRODUCT,
    ),
    Operator(
        onnx=names("com.microsoft.MatMulNBits"),
        work=product(bias=5),
        restrict=quantised,
        features=Features(Loops.PRODUCT, blockwise=True),
    ),
)


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


def _gates(gates: int) -> Workspace:
    """Return a rule: gates of all steps by direction; if backward, reversed input and output."""

    def workspace(node: Node, threads: int) -> Sequence[int]:
        require_floats(node)
        steps, batch, features = node.tensor_at(0).shape
        hidden = node.number("hidden_size")
        row_bytes = steps * batch * FLOAT_BYTES
        direction = node.text("direction") or "forward"
        directions = [row_bytes * gates * hidden] * (2 if direction == "bidirectional" else 1)
        reversed_ = [] if direction == "forward" else [row_bytes * features, row_bytes * hidden]
        return [*directions, *reversed_]

    return workspace


def _products(node: Node, threads: int) -> Sequence[int]:
    """The products of all steps with the input; directions take turns."""
    require_floats(node)
    steps, batch, _ = node.tensor_at(0).shape
    return (steps * batch * node.number("hidden_size") * FLOAT_BYTES,)


def _lengths(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    if port != 4 or not shape or len(shape) != 3:
        return None
    return length(node, shape[1 if node.number("layout") else 0])


_RECURRENT = (
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


_SIGNALS = (
    Operator(onnx=names("DFT"), restrict=shape_at(1, 2)),
    Operator(onnx=names("STFT"), restrict=shape_at(1, 3)),
    Operator(onnx=names("BlackmanWindow HammingWindow HannWindow"), restrict=shape_at(0)),
    # Edges of the scale.
    Operator(onnx=names("MelWeightMatrix"), restrict=shape_at(0, 1, 2), steering=Steering((3, 4))),
)

OPERATORS = (*_PRODUCTS, *_RECURRENT, *_SIGNALS)
