"""Count the arithmetic of ONNX nodes: floating-point (or integer) operations, from types alone.

A multiply-add is two operations. The counts per operator are:

* convolutions and matrix products: 2 x outputs x terms of the sum; one more per output for a bias
  and for a fused addition, one for a fused activation. Blocked layouts are counted with their
  padding, since the runtime computes it too;
* recurrent layers: their matrix products only; attention: matrix products and softmax;
* pooling: window x outputs (global: inputs); reductions, argmin and cumulative sums: inputs;
* normalisation: 8 per element (mean, variance, scale, shift), batch normalisation 2, LRN 2 x size,
  softmax 5 (maximum, difference, exponential, sum, quotient), log-softmax 6;
* elementwise: 1 per output, whatever the function; with n operands n - 1; quantising 2, a range 2;
* resizing: 2 x the inputs that an output is weighted from (4 for two linear dimensions); nearest 0;
* moving, selecting and converting data, and constants: 0.

An operator without a rule here makes the work of the whole piece unknown; nothing is guessed. Must
not know runtimes or times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx

from bricks.graph.containers import ValueType
from bricks.graph.topology import default_domain

_SOFTMAX = 5
_NORMALISE = 8


class _Node:
    """A node with the types of its ports and its attributes at hand."""

    def __init__(self, proto: onnx.NodeProto, types: Mapping[str, ValueType]) -> None:
        self._proto = proto
        self._types = types
        self.arity = sum(1 for name in proto.input if name)

    def has(self, port: int) -> bool:
        """Whether something is connected to this input."""
        return port < len(self._proto.input) and bool(self._proto.input[port])

    def input(self, port: int) -> ValueType:
        """Type of an input; ``KeyError`` if it isn't known or nothing is connected."""
        return self._types[self._proto.input[port] if port < len(self._proto.input) else ""]

    @property
    def output(self) -> ValueType:
        """Type of the first output that is connected."""
        return self._types[next(name for name in self._proto.output if name)]

    def number(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return next((a.i for a in self._proto.attribute if a.name == name), default)

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute of integers; empty if it is absent."""
        return next((tuple(a.ints) for a in self._proto.attribute if a.name == name), ())

    def text(self, name: str) -> str:
        """A string attribute; empty if it is absent."""
        return next((a.s.decode() for a in self._proto.attribute if a.name == name), "")


Rule = Callable[[_Node], int | None]


def node_flops(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int | None:
    """Operations of an ONNX node; None where they aren't known.

    Attributes that are invalid for their operator also give None.
    """
    rule = _RULES.get((default_domain(node.domain), node.op_type))
    try:
        return None if rule is None else rule(_Node(node, types))
    except (KeyError, IndexError, StopIteration, ValueError, ZeroDivisionError):
        return None


def _nothing(node: _Node) -> int:
    return 0


def _per_output(times: int) -> Rule:
    return lambda node: times * node.output.elements


def _per_input(times: int) -> Rule:
    return lambda node: times * node.input(0).elements


def _variadic(node: _Node) -> int:
    return max(node.arity - 1, 0) * node.output.elements


def _conv(weight: int, extras: Sequence[int] = ()) -> Rule:
    """Convolution with its weight at this input; ``extras`` are inputs added to each output."""

    def rule(node: _Node) -> int:
        terms = math.prod(node.input(weight).shape[1:])
        each = 2 * terms + sum(node.has(port) for port in extras) + bool(node.text("activation"))
        return each * node.output.elements

    return rule


def _conv_transpose(node: _Node) -> int:
    each = 2 * math.prod(node.input(1).shape[1:])
    return each * node.input(0).elements + node.has(2) * node.output.elements


def _matmul(bias: int | None = None) -> Rule:
    """Matrix product of input 0 with another, whose other sizes follow from the output."""

    def rule(node: _Node) -> int | None:
        if node.number("transBatchA") or node.number("transBatchB"):
            return None
        shape = node.input(0).shape
        terms = shape[-2] if node.number("transA") and len(shape) > 1 else shape[-1]
        extra = bool(node.text("activation")) + (bias is not None and node.has(bias))
        return (2 * terms + extra) * node.output.elements

    return rule


def _einsum(node: _Node) -> int | None:
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
        sizes.update(zip(letters, node.input(port).shape, strict=True))
    summed = set(sizes) - set(result)
    if len(operands) == 1:
        return math.prod(sizes.values()) if summed else 0
    return (2 if summed else 1) * math.prod(sizes.values())


def _recurrent(gates: int) -> Rule:
    """Matrix products of all steps, directions and gates."""

    def rule(node: _Node) -> int:
        steps, batch, _ = node.input(0).shape
        directions, rows, width = node.input(1).shape
        hidden = rows // gates
        return 2 * steps * batch * directions * rows * (width + hidden)

    return rule


def _attention(node: _Node) -> int | None:
    """Joint projection, scores, softmax, weighted sum; None with a past or custom sizes."""
    if node.has(4) or node.numbers("qkv_hidden_sizes"):
        return None
    batch, length, width = node.input(0).shape
    joint = node.input(1).shape[1]
    rows = batch * length
    projection = rows * joint * (2 * width + node.has(2))
    scores = 2 * 2 * rows * length * (joint // 3)
    return projection + scores + _SOFTMAX * rows * length * node.number("num_heads")


def _multi_head_attention(node: _Node) -> int | None:
    """Scores, softmax, weighted sum; None with a bias or past, or a joint query, key or value."""
    if any(node.has(port) for port in (3, 6, 7)) or not (node.has(1) and node.has(2)):
        return None
    shapes = [node.input(port).shape for port in range(3)]
    if any(len(shape) != 3 for shape in shapes):
        return None
    (batch, rows, width), (_, length, _), (_, _, value_width) = shapes
    products = 2 * batch * rows * length * (width + value_width)
    return products + _SOFTMAX * batch * rows * length * node.number("num_heads")


def _pool(node: _Node) -> int:
    return math.prod(node.numbers("kernel_shape")) * node.output.elements


def _scatter(node: _Node) -> int:
    """No operations for moving data; one per update where a reduction combines it."""
    return node.input(2).elements if node.text("reduction") not in ("", "none") else 0


def _resize(node: _Node) -> int | None:
    """Two, or four, neighbours in each dimension that changes."""
    mode = node.text("mode") or "nearest"
    if mode == "nearest":
        return 0
    sides = zip(node.input(0).shape, node.output.shape, strict=True)
    changed = sum(before != after for before, after in sides)
    return 2 * {"linear": 2, "cubic": 4}[mode] ** changed * node.output.elements if changed else 0


def _standard() -> dict[str, Rule]:
    """Rules of ONNX's own operators."""
    rules: dict[str, Rule] = {
        "Conv": _conv(1, (2,)),
        "ConvInteger": _conv(1),
        "QLinearConv": _conv(3, (8,)),
        "ConvTranspose": _conv_transpose,
        "Gemm": _matmul(2),
        "MatMul": _matmul(),
        "MatMulInteger": _matmul(),
        "QLinearMatMul": _matmul(),
        "Einsum": _einsum,
        "LSTM": _recurrent(4),
        "GRU": _recurrent(3),
        "RNN": _recurrent(1),
        "MaxPool": _pool,
        "AveragePool": _pool,
        "LpPool": _pool,
        "BatchNormalization": _per_input(2),
        "LRN": lambda node: 2 * node.number("size") * node.input(0).elements,
        "Softmax": _per_input(_SOFTMAX),
        "LogSoftmax": _per_input(_SOFTMAX + 1),
        "ScatterElements": _scatter,
        "ScatterND": _scatter,
        "Range": _per_output(2),
        "Resize": _resize,
        "QuantizeLinear": _per_output(2),
        "DequantizeLinear": _per_output(2),
        "DynamicQuantizeLinear": _per_output(4),
    }
    rules |= dict.fromkeys(_NORMALISATIONS, _per_input(_NORMALISE))
    rules |= dict.fromkeys(_REDUCTIONS, _per_input(1))
    rules |= dict.fromkeys(_ELEMENTWISE, _per_output(1))
    rules |= dict.fromkeys(("Sum", "Mean", "Max", "Min"), _variadic)
    rules |= dict.fromkeys(_MOVING, _nothing)
    return rules


def _contributed() -> dict[str, Rule]:
    """Rules of onnxruntime's additional operators."""
    rules: dict[str, Rule] = {
        "FusedConv": _conv(1, (2, 3)),
        "FusedGemm": _matmul(2),
        "FusedMatMul": _matmul(),
        "MatMulIntegerToFloat": _matmul(6),
        "DynamicQuantizeMatMul": _matmul(4),
        "MatMulNBits": _matmul(5),
        "Attention": _attention,
        "MultiHeadAttention": _multi_head_attention,
        "SkipLayerNormalization": _per_input(_NORMALISE + 1),
        "SkipSimplifiedLayerNormalization": _per_input(_NORMALISE + 1),
        "BiasGelu": _per_output(2),
        "FastGelu": lambda node: (1 + node.has(1)) * node.output.elements,
        "QLinearGlobalAveragePool": _per_input(1),
        "QLinearAveragePool": _pool,
        "QLinearSoftmax": _per_input(_SOFTMAX),
        "QuantizeLinear": _per_output(2),
        "DequantizeLinear": _per_output(2),
        "QLinearConcat": _nothing,
        "NhwcMaxPool": _pool,
    }
    rules |= dict.fromkeys(
        ("Gelu", "QuickGelu", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"),
        _per_output(1),
    )
    return rules


def _blocked() -> dict[str, Rule]:
    """Rules of onnxruntime's operators on blocked layouts."""
    return {
        "Conv": _conv(1, (2, 3)),
        "MaxPool": _pool,
        "AveragePool": _pool,
        "GlobalMaxPool": _per_input(1),
        "GlobalAveragePool": _per_input(1),
        "ReorderInput": _nothing,
        "ReorderOutput": _nothing,
    }


# SimplifiedLayerNormalization is onnxruntime's, but it is registered in ONNX's own domain.
_NORMALISATIONS = (
    "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization "
    "SimplifiedLayerNormalization MeanVarianceNormalization LpNormalization"
).split()
_REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceLogSumExp ReduceSumSquare ArgMax ArgMin CumSum "
    "GlobalAveragePool GlobalMaxPool GlobalLpPool"
).split()
_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
    "BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual "
    "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Mish Mod Mul Neg Not Or "
    "PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub "
    "Swish Tan Tanh ThresholdedRelu Where Xor"
).split()
_MOVING = (
    "Cast CastLike Compress Concat Constant ConstantOfShape DepthToSpace Dropout Expand EyeLike "
    "Flatten Gather GatherElements GatherND Identity Pad Reshape ReverseSequence Shape Size Slice "
    "SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze"
).split()
_DOMAINS = {"": _standard(), "com.microsoft": _contributed(), "com.microsoft.nchwc": _blocked()}
_RULES = {(domain, op): rule for domain, rules in _DOMAINS.items() for op, rule in rules.items()}
