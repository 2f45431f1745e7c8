"""What kernels of ONNX Runtime take from the arena while they run: their workspace.

Buffers for im2col, transposed copies, scores of attention. Each rule was found by comparing the
runtime's resident memory before and during a run of the operator; a test repeats that. An operator
without a rule has an unknown workspace: nothing is guessed. Must not know plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from bricks.compose.memory.node import Node, node_of
from bricks.decompose.plan import Brick

_FLOAT_BYTES = 4
_CONTRIB, _BLOCKED = "com.microsoft.", "com.microsoft.nchwc."

# Of a convolution that is cut into segments, the elements that each thread unfolds at a time.
_SEGMENT = 32 * 1024

Rule = Callable[[Node, int], Sequence[int]]


def workspace(brick: Brick, threads: int) -> tuple[int, ...] | None:
    """Sizes in bytes of what the kernel of ``brick`` takes on ``threads``; None where unknown."""
    (operator, *others) = brick.operators or ("",)
    if NO_WORKSPACE.issuperset((operator, *others)):
        return ()
    if others:
        return None
    rule = _RULES.get(operator)
    node = None if rule is None else node_of(brick)
    if rule is None or node is None:
        return None
    try:
        return tuple(size for size in rule(node, threads) if size)
    except (LookupError, ValueError):  # ports or types for which no rule was found
        return None


def _floats(node: Node, *ports: int) -> None:
    """Raise ``LookupError`` unless the inputs at these ports are 32-bit floats."""
    if any(node.tensor(port).dtype != "FLOAT" for port in ports):
        raise LookupError(f"{node.operator} of other types than float")


def _output(node: Node) -> int:
    return node.outputs[0].size_bytes


def _biased(node: Node, threads: int) -> Sequence[int]:
    """The input with the bias added, if there is one."""
    return (_output(node),) if node.given(1) else ()


def _dropout(node: Node, threads: int) -> Sequence[int]:
    """A mask of bytes, unless it is an output."""
    return (node.tensor(0).elements,) if len(node.outputs) == 1 else ()


def _conv(node: Node, threads: int) -> Sequence[int]:
    """The unfolded input: all of it if there are more filters than pixels, else by segments."""
    _floats(node, 0, 1)
    filters, *window = node.tensor(1).shape
    taps = window[1:]
    plain = not any(node.numbers("pads")) and set(node.numbers("strides")) <= {1}
    if math.prod(taps) == 1 and plain and node.text("auto_pad") in ("", "NOTSET", "VALID"):
        return ()
    pixels = math.prod(node.outputs[0].shape[2:])
    if filters // node.number("group", 1) > pixels:
        return (pixels * math.prod(window) * _FLOAT_BYTES,)
    return (threads * _SEGMENT * _FLOAT_BYTES,)


def _conv_transpose(node: Node, threads: int) -> Sequence[int]:
    """The columns of one image and group, before they are added up."""
    _floats(node, 0, 1)
    columns = math.prod(node.tensor(1).shape[1:])
    return (columns * math.prod(node.tensor(0).shape[2:]) * _FLOAT_BYTES,)


def _lrn(node: Node, threads: int) -> Sequence[int]:
    """A scale for each element, and the squares of one image, padded by channels."""
    _floats(node, 0)
    _, channels, *sizes = node.tensor(0).shape
    padded = (channels + node.number("size") - 1) * math.prod(sizes)
    return (node.tensor(0).size_bytes, padded * _FLOAT_BYTES)


def _where(node: Node, threads: int) -> Sequence[int]:
    """Both choices, each broadcast with the condition."""
    condition, element_bytes = node.tensor(0).shape, _output(node) // node.outputs[0].elements
    return [
        element_bytes * math.prod(_broadcast(condition, node.tensor(port).shape)) for port in (1, 2)
    ]


def _broadcast(a: Sequence[int], b: Sequence[int]) -> list[int]:
    rank = max(len(a), len(b))
    sizes = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return [y if x == 1 else x for x, y in sizes]


def _along_axis(node: Node, threads: int) -> Sequence[int]:
    """Transposed copies of input and output, unless the axis is the last one.

    Before version 13 all axes from the given one on were taken together.
    """
    last = len(node.tensor(0).shape) - 1
    if node.version < 13 or node.number("axis", -1) in (-1, last):
        return ()
    return (_output(node), _output(node))


def _scatter(node: Node, threads: int) -> Sequence[int]:
    """The indices, as 64-bit integers."""
    return (8 * node.tensor(1).elements,)


def _resize(node: Node, threads: int) -> Sequence[int]:
    if node.number("antialias"):
        raise LookupError("Resize with antialiasing")
    return ()


def _product(node: Node, threads: int) -> Sequence[int]:
    """Nothing, for the types that have a kernel of their own."""
    for port in (0, 1):
        if node.tensor(port).dtype not in ("FLOAT", "DOUBLE"):
            raise LookupError(f"{node.operator} of other types")
    return ()


def _recurrent(gates: int) -> Rule:
    def rule(node: Node, threads: int) -> Sequence[int]:
        """The gates of all steps by direction; if one is backward, input and output, reversed."""
        _floats(node, 0, 1)
        steps, batch, features = node.tensor(0).shape
        hidden = node.number("hidden_size")
        each = steps * batch * _FLOAT_BYTES
        direction = node.text("direction") or "forward"
        directions = [each * gates * hidden] * (2 if direction == "bidirectional" else 1)
        turned = [] if direction == "forward" else [each * features, each * hidden]
        return [*directions, *turned]

    return rule


def _rnn(node: Node, threads: int) -> Sequence[int]:
    """The products of all steps with the input; directions take turns."""
    _floats(node, 0, 1)
    steps, batch, _ = node.tensor(0).shape
    return (steps * batch * node.number("hidden_size") * _FLOAT_BYTES,)


def _attention(node: Node, threads: int) -> Sequence[int]:
    """Queries, keys, values, the scores, and the result before heads are put together."""
    _floats(node, 0, 1)
    if any(node.given(port) for port in (4, 5, 6)):
        raise LookupError("attention with a past")
    batch, tokens, _ = node.tensor(0).shape
    projected = batch * tokens * node.tensor(1).shape[1]
    scores = batch * node.number("num_heads") * tokens * tokens
    return (projected * _FLOAT_BYTES, scores * _FLOAT_BYTES, _output(node))


def _scores(node: Node, threads: int) -> Sequence[int]:
    """The scores of the standard operator, whose inputs are divided into heads already."""
    _floats(node, 0, 1, 2)
    if any(node.given(port) for port in (4, 5, 6)):
        raise LookupError("attention with a past")
    batch, heads, tokens, _ = node.tensor(0).shape
    return (batch * heads * tokens * node.tensor(1).shape[2] * _FLOAT_BYTES,)


def _heads(node: Node, threads: int) -> Sequence[int]:
    """Queries, keys and values, transposed; scores are computed in blocks."""
    _floats(node, 0, 1, 2)
    if any(node.given(port) for port in range(4, len(node.inputs))):
        raise LookupError("attention with a mask or a past")
    return [node.tensor(port).size_bytes for port in (0, 1, 2)]


def _quantised_input(node: Node, threads: int) -> Sequence[int]:
    return (node.tensor(0).elements,)


def _sums(node: Node, threads: int) -> Sequence[int]:
    """The result before it is quantised: 32-bit integers."""
    return (4 * node.outputs[0].elements,)


# Elementwise operators, moves, reductions, pooling and normalisation need no workspace. Operators
# that the runtime expands into others (HardSwish, GroupNormalization) are not nodes of a plan.
NO_WORKSPACE = frozenset(
    (
        *(
            "Abs Add And ArgMax ArgMin Atan AveragePool BatchNormalization Cast CastLike Ceil Celu"
            " Clip Concat ConstantOfShape Cos Cosh CumSum DepthToSpace DequantizeLinear Div"
            " DynamicQuantizeLinear Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather"
            " GatherElements GatherND Gelu GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual"
            " GridSample HardSigmoid Identity InstanceNormalization IsInf IsNaN LayerNormalization"
            " LeakyRelu Less LessOrEqual Log LpNormalization LpPool MatMulInteger Max MaxPool Mean"
            " Min Mod Mul Neg NonMaxSuppression Not OneHot Or PRelu Pad Pow QuantizeLinear"
            " RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp"
            " ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape"
            " ReverseSequence Round ScatterND Selu Shape Shrink Sigmoid Sign"
            " SimplifiedLayerNormalization Sin Sinh Size Slice Softplus Softsign SpaceToDepth Split"
            " Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze"
            " Upsample Xor"
        ).split(),
        *(
            _CONTRIB + name
            for name in (
                "EmbedLayerNormalization Gelu MatMulIntegerToFloat QLinearAdd QLinearMul QuickGelu"
                " RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization"
            ).split()
        ),
        *(
            _BLOCKED + name
            for name in (
                "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput"
                " ReorderOutput Upsample"
            ).split()
        ),
    )
)

_RULES: dict[str, Rule] = {
    "Conv": _conv,
    _CONTRIB + "FusedConv": _conv,
    "ConvTranspose": _conv_transpose,
    "LRN": _lrn,
    "Where": _where,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along_axis),
    "ScatterElements": _scatter,
    "Resize": _resize,
    **dict.fromkeys(("MatMul", "Gemm"), _product),
    **dict.fromkeys((_CONTRIB + "FusedMatMul", _CONTRIB + "FusedGemm"), _product),
    **dict.fromkeys((_CONTRIB + "FastGelu", _CONTRIB + "BiasGelu"), _biased),
    "Dropout": _dropout,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _rnn,
    "Attention": _scores,
    _CONTRIB + "Attention": _attention,
    _CONTRIB + "MultiHeadAttention": _heads,
    _CONTRIB + "DynamicQuantizeMatMul": _quantised_input,
    "QLinearMatMul": _sums,
    _CONTRIB + "QGemm": _sums,
}
