"""Restrictions of operators on their integer inputs; :mod:`bricks.graph.domains` applies them.

Separate because this part grows with new operators: tables of inputs that give shapes, that are
passed on, or that are masks, and one function per kind of index or length. It includes operators of
``com.microsoft``, because models are saved with them, whichever runtime executes them. Must not
know how values are followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import onnx

from bricks.graph.containers import ValueType
from bricks.graph.payload import is_referenced, read_inline

EXACT: Final = "exact"  # the values must lie in low … high
MASKING: Final = "masking"  # any value runs, 1 means valid
STEERING: Final = "steering"  # the value gives a shape, count, axis or branch: none is safe


@dataclass(frozen=True, slots=True)
class Restriction:
    """The restriction of one use; ``low`` and ``high`` (exclusive) apply to ``EXACT`` only."""

    kind: str
    why: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """The types and constants that a restriction may depend on."""

    types: Mapping[str, ValueType]
    constants: Mapping[str, onnx.TensorProto]

    def shape(self, node: onnx.NodeProto, index: int) -> tuple[int, ...] | None:
        """The shape of input ``index`` of ``node``, if it is given and known."""
        name = node.input[index] if index < len(node.input) else ""
        return self.types[name].shape if name in self.types else None


# Inputs whose values are passed on to the outputs unchanged.
_PASSING: Final[Mapping[str, tuple[int, ...]]] = {
    "Cast": (0,), "CastLike": (0,), "Reshape": (0,), "Unsqueeze": (0,), "Squeeze": (0,),
    "Identity": (0,), "Flatten": (0,), "Transpose": (0,), "Slice": (0,),
    "Expand": (0,), "Tile": (0,), "Gather": (0,), "GatherElements": (0,), "GatherND": (0,),
    "ScatterElements": (0, 2), "ScatterND": (0, 2), "Scatter": (0, 2), "Where": (1, 2),
    "Clip": (0,), "Pad": (0, 2), "Dropout": (0,), "DepthToSpace": (0,), "SpaceToDepth": (0,),
    "ReverseSequence": (0,), "Trilu": (0,), "Compress": (0,), "TopK": (0,), "Unique": (0,),
    "ReduceMax": (0,), "ReduceMin": (0,), "MaxPool": (0,),
}  # fmt: skip
_PASSING_ALL: Final = frozenset({"Concat", "Min", "Max", "SequenceConstruct"})
# Inputs that give shapes, counts or axes, or choose a branch.
_STEERING: Final[Mapping[str, tuple[int, ...]]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (3,), "TopK": (1,), "Unsqueeze": (1,),
    "Squeeze": (1,), "Split": (1,), "OneHot": (1,), "CumSum": (1,), "CumProd": (1,),
    "Trilu": (1,), "Loop": (0, 1), "If": (0,), "MelWeightMatrix": (0, 1, 2),
    "NonMaxSuppression": (2,), "CenterCropPad": (1,), "Col2Im": (1, 2), "MaxUnpool": (2,),
    "AffineGrid": (1,), "DFT": (1, 2), "STFT": (1, 3), "HannWindow": (0,), "HammingWindow": (0,),
    "BlackmanWindow": (0,), "SplitToSequence": (1,), "SequenceAt": (1,), "RandomUniform": (0,),
}  # fmt: skip
_REDUCTIONS: Final = frozenset(
    f"Reduce{kind}"
    for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")
)
_MASKS: Final = frozenset(
    {"Equal", "Not", "And", "Or", "Xor", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
    | {"CumSum", "IsNaN", "Sign"}
)
_QUANTISED: Final = frozenset(
    {"DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger"}
    | {"QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearSigmoid"}
    | {"QLinearAveragePool", "QLinearLeakyRelu", "QLinearSoftmax", "QGemm", "QAttention"}
    | {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits", "QLinearWhere"}
)
# Inputs for zero points of weights, and what these are: tools quantise weights around the middle.
# Kernels depend on it: ONNX Runtime's depthwise convolution takes fifty times as long where
# channels have different ones.
_WEIGHT_ZERO_POINTS: Final[Mapping[str, int]] = {
    "QLinearConv": 5, "QLinearMatMul": 5, "QGemm": 5, "ConvInteger": 3, "MatMulInteger": 3,
    "DynamicQuantizeMatMul": 3, "MatMulIntegerToFloat": 5,
}  # fmt: skip
_MIDDLE: Final = {"INT8": 0, "UINT8": 128}


def passes_on(node: onnx.NodeProto, index: int) -> Iterator[str]:
    """The values to which ``node`` passes on the contents of its input ``index``."""
    op = node.op_type
    if op in ("Loop", "Scan"):
        # Loop passes its body the count and the condition first; Scan passes on all of its inputs.
        for attribute in node.attribute:
            if attribute.name == "body" and index < len(attribute.g.input):
                yield attribute.g.input[index].name
    elif op == "Split" and index == 0:
        yield from (name for name in node.output if name)
    elif op == "Cast" and _attribute(node, "to", 0) in _NOT_INTEGER:
        return  # a float or a boolean cannot be an index
    elif node.output and (op in _PASSING_ALL or index in _PASSING.get(op, ())):
        yield node.output[0]  # other outputs are indices, masks, counts


def restriction(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    """The restriction of ``node`` on its input ``index``; None if there is none."""
    op = node.op_type
    if index in _STEERING.get(op, ()) or (op in _REDUCTIONS and index == 1):
        return Restriction(STEERING, f"{op} takes a shape, count, axis or branch from it")
    found = _EXACT[op](node, index, scene) if op in _EXACT else None
    if found is not None:
        return found
    dtype = scene.types[node.input[index]].dtype if node.input[index] in scene.types else ""
    if index == _WEIGHT_ZERO_POINTS.get(op) and dtype in _MIDDLE:
        middle = _MIDDLE[dtype]
        return Restriction(EXACT, f"a zero point of {op}'s weights", middle, middle + 1)
    if op in _QUANTISED:
        if dtype not in ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2", "INT16", "UINT16"):
            return None
        bits = int(dtype.removeprefix("U").removeprefix("INT"))
        low = 0 if dtype.startswith("U") else -(1 << bits - 1)
        return Restriction(EXACT, f"quantised data of {op}", low, low + (1 << bits))
    return _mask(node, index, scene)


def _mask(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    op = node.op_type
    masking = (
        op in _MASKS
        or (op == "Cast" and _attribute(node, "to", 0) in _NOT_INTEGER)
        or (op == "Where" and index == 0)
        or (op == "Sub" and index == 1)
        or (op in ("Mul", "Sub") and any(i not in scene.constants for i in _others(node, index)))
        or (op in _REDUCTIONS and index == 0)
        or (op == "MultiHeadAttention" and index == 4)
        or (op == "EmbedLayerNormalization" and index == 7)
        or (op == "Attention" and index == 3)
    )
    return Restriction(MASKING, f"a mask for {op}") if masking else None


def _others(node: onnx.NodeProto, index: int) -> list[str]:
    return [name for i, name in enumerate(node.input) if i != index]


def _index(op: str, low: int, high: int) -> Restriction:
    return Restriction(EXACT, f"an index of {op}, from {low} to {high - 1}", low, high)


def _axis_index(data: int, indices: int, default_axis: int) -> _Rule:
    """Indices at input ``indices`` into an axis of input ``data``, given by the attribute."""

    def rule(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
        shape = scene.shape(node, data)
        axis = _attribute(node, "axis", default_axis)
        if index != indices or not shape or not -len(shape) <= axis < len(shape):
            return None
        return _index(node.op_type, 0, shape[axis])

    return rule


def _tuple_index(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape, indices = scene.shape(node, 0), scene.shape(node, 1)
    if index != 1 or not shape or not indices:
        return None
    skipped = _attribute(node, "batch_dims", 0)
    # One range for all columns of the indices: the range of the shortest indexed axis.
    addressed = shape[skipped : skipped + indices[-1]]
    return _index(node.op_type, 0, min(addressed)) if addressed else None


def _one_hot(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    depth = scene.constants.get(node.input[1]) if index == 0 and len(node.input) > 1 else None
    if depth is None or is_referenced(depth):
        return None
    values = read_inline(depth)
    return _index("OneHot", 0, int(values.reshape(-1)[0])) if values.size else None


def _recurrent(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape = scene.shape(node, 0)
    if index != 4 or not shape or len(shape) != 3:
        return None
    return _length(node.op_type, shape[1 if _attribute(node, "layout", 0) else 0])


def _reverse_sequence(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape = scene.shape(node, 0)
    axis = _attribute(node, "time_axis", 0)
    if index != 1 or not shape or not 0 <= axis < min(2, len(shape)):
        return None
    return _length(node.op_type, shape[axis])


def _length(op: str, length: int) -> Restriction:
    return Restriction(EXACT, f"the sequence length of {op}, {length}", length, length + 1)


def _embed_layer_norm(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    table = {0: 2, 1: 4, 8: 3}.get(index)  # input ids, segments, positions → their embeddings
    shape = scene.shape(node, table) if table is not None else None
    return _index(node.op_type, 0, shape[0]) if shape else None


def _grouped_attention(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    query, past = scene.shape(node, 0), scene.shape(node, 3)
    if index not in (5, 6) or query is None or len(query) != 3:
        return None
    total = query[1] + (past[2] if past is not None and len(past) == 4 else 0)
    return _length(node.op_type, total - 1 if index == 5 else total)


def _attention_lengths(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    data, lengths = scene.shape(node, 0), scene.shape(node, 3)
    if node.domain != "com.microsoft" or index != 3 or not data or lengths is None:
        return None
    return _length("Attention", data[1]) if len(lengths) == 1 and len(data) == 3 else None


def _rotary(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    own = bool(node.domain)  # com.microsoft has the positions second, the standard last
    shape = scene.shape(node, 2 if own else 1)
    if index != (1 if own else 3) or not shape:
        return None
    data, positions = scene.shape(node, 0), scene.shape(node, index)
    # A single position is the start of the sequence; the rest of the sequence must fit as well.
    rest = data[-2] - 1 if own and data and len(data) > 1 and positions == (1,) else 0
    return _index(node.op_type, 0, max(1, shape[0] - rest))


def _class_index(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape = scene.shape(node, 0)
    return _index(node.op_type, 0, shape[1]) if index == 1 and shape and len(shape) > 1 else None


def _region_index(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape = scene.shape(node, 0)
    return _index("RoiAlign", 0, shape[0]) if index == 2 and shape else None


def _unpool_index(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    shape = scene.shape(node, 0)
    return _index("MaxUnpool", 0, math.prod(shape)) if index == 1 and shape else None


def _divisor(node: onnx.NodeProto, index: int, scene: Scene) -> Restriction | None:
    # An integer division by zero ends the process that attempts it.
    return Restriction(EXACT, f"a divisor of {node.op_type}", 1, 128) if index == 1 else None


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)


_Rule = Callable[[onnx.NodeProto, int, Scene], Restriction | None]
_EXACT: Final[Mapping[str, _Rule]] = {
    "Gather": _axis_index(0, 1, 0),
    "GatherElements": _axis_index(0, 1, 0),
    "GatherBlockQuantized": _axis_index(0, 1, 0),
    "ArrayFeatureExtractor": _axis_index(0, 1, -1),
    "Scatter": _axis_index(0, 1, 0),
    "ScatterElements": _axis_index(0, 1, 0),
    "GatherND": _tuple_index,
    "ScatterND": _tuple_index,
    "OneHot": _one_hot,
    "RNN": _recurrent,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "ReverseSequence": _reverse_sequence,
    "EmbedLayerNormalization": _embed_layer_norm,
    "GroupQueryAttention": _grouped_attention,
    "Attention": _attention_lengths,
    "RotaryEmbedding": _rotary,
    "NegativeLogLikelihoodLoss": _class_index,
    "SoftmaxCrossEntropyLoss": _class_index,
    "RoiAlign": _region_index,
    "MaxUnpool": _unpool_index,
    "Div": _divisor,
    "Mod": _divisor,
}
_NOT_INTEGER: Final = frozenset(
    number
    for name, number in onnx.TensorProto.DataType.items()
    if "FLOAT" in name or name in ("DOUBLE", "BOOL")
)
