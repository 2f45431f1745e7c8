"""Features of a brick that are known without running it, for learning latencies.

Features are few, and chosen for their effect on how long a runtime takes: the operator, its layout
and fused operators, the shapes of its inner loops, and the total bytes and operations. Bricks of
one ``kind`` have the same features in the same columns, so that they can be compared. Must not know
latencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.decompose.plan import Brick
from bricks.decompose.stretches import SHORTEST
from bricks.graph.containers import ValueType
from bricks.graph.form import ModelForm, node_form
from bricks.graph.model_metadata import between_types, noted_weight_bytes
from bricks.graph.tensor import TensorType
from bricks.graph.topology import default_domain
from bricks.predict.program_features import (
    Description,
    described_convolution,
    described_product,
    is_convolution,
    is_product,
)
from bricks.samples.state_model import SizeFacts

CONVOLUTION, PRODUCT, STREAM = "convolution", "product", "stream"

# The sizes of each kind, in order; all are logarithms to base 2.
SIZES = {
    CONVOLUTION: ("pixels", "width", "terms", "outputs", "groups", "taps", "stride", "dilation"),
    PRODUCT: ("batch", "rows", "columns", "terms"),
    STREAM: ("written", "read", "run", "operands", "taps"),
}
# The tags of each kind, in order. The operator is stored separately.
TAGS = {
    CONVOLUTION: ("form", "layout", "dtype", "activation", "summed"),
    PRODUCT: ("form", "layout", "dtype", "activation", "transposed", "weight"),
    STREAM: ("layout", "dtype", "pattern", "mode"),
}

_CONVOLUTIONS = frozenset(
    "Conv FusedConv NhwcConv NhwcFusedConv ConvTranspose ConvTransposeWithDynamicPads DeformConv"
    " ConvInteger QLinearConv QLinearConvTranspose".split()
)
_PRODUCTS = frozenset(
    "Gemm MatMul FusedGemm FusedMatMul MatMulInteger QLinearMatMul MatMulIntegerToFloat"
    " DynamicQuantizeMatMul MatMulNBits QGemm TransposeMatMul GemmFloat8".split()
)
# These hold the right operand as blocks of a few bits, of which the kernel depends.
_BLOCKWISE = frozenset({"MatMulNBits"})
# These read no more than they write, however large the table is that they select from.
_SELECTING = frozenset("Gather GatherElements GatherND Slice Compress Shape Size".split())
# These work along an axis, the last one by default.
_ALONG_AXIS = frozenset(
    "ArgMax ArgMin Concat Gather LayerNormalization LogSoftmax LpNormalization QLinearConcat"
    " Softmax Split".split()
)
_BROADCASTING = frozenset(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Expand Greater GreaterOrEqual Less"
    " LessOrEqual Max Mean Min Mod Mul Or PRelu Pow QLinearAdd QLinearMul Sub Sum Where Xor".split()
)
# Windows with more rows are not treated as windows; nothing is counted there.
_MAX_ROWS = 1 << 16
# A node of a stretch of tiny ones takes about a tenth of a call.
_NODE_CALLS = 0.1
_MODES = ("mode", "reduction", "coordinate_transformation_mode", "nearest_mode", "direction")


@dataclass(frozen=True, slots=True)
class Context:
    """The model that a brick is from, and the machine's state, as far as latencies depend on them.

    ``working_set_bytes`` are the weights that the model reads in each run, and its largest values.
    The brick occurs ``repeats`` times in it, and is this ``share`` of its work. By default, nothing
    is known of a model: its working set is assumed to exceed every cache. ``slowness`` tells how
    much slower the reference workload is than in the fastest state, in factors of two.
    """

    working_set_bytes: float = math.inf
    repeats: int = 1
    share: float = 0.0
    slowness: float = 0.0

    def prevailing(self, other: Context | None) -> Context:
        """Of two models' contexts, that of the model of whose work the brick is a larger share."""
        if other is None:
            return self
        return max(self, other, key=lambda c: (c.share, -c.working_set_bytes, c.repeats))


@dataclass(frozen=True, slots=True)
class BrickFeatures:
    """The features of one brick; ``SIZES`` and ``TAGS`` describe ``sizes`` and ``tags``.

    ``operator`` is its operator, or all of them joined by ``+``. ``flops`` is 0 where the work is
    not known. ``weight_bytes`` are those that are read, few of a table of which rows are selected.
    ``pieces`` is the number of memory stretches accessed, as far as it is known. ``context_bytes``
    is about the weights of its model where the brick itself says so, because it is bound by reading
    its own; else None.
    """

    kind: str
    operator: str
    tags: tuple[str, ...]
    sizes: tuple[float, ...]
    flops: float
    read_bytes: float
    written_bytes: float
    weight_bytes: float
    pieces: float
    context_bytes: float | None = None
    context: Context = Context()

    @property
    def calls(self) -> float:
        """Calls of the runtime that it takes as long as beside its work: one, and its nodes."""
        nodes = self.operator.count("+") + 1
        return 1.0 + _NODE_CALLS * nodes if nodes >= SHORTEST else 1.0

    def tag(self, name: str) -> str:
        """The tag of that name, one of those of its kind."""
        return self.tags[TAGS[self.kind].index(name)]

    @property
    def kernel(self) -> str:
        """The operator and the variant of it for which runtimes have a separate kernel.

        All operators that are a single matrix product share the kernels of their data type.
        """
        variant = self.tag("pattern" if self.kind == STREAM else "form")
        if self.kind == PRODUCT and "+" not in self.operator:
            return f"{self.tag('dtype')} product {variant}"
        return f"{self.operator} {variant}"

    @property
    def moved_bytes(self) -> float:
        """The bytes of values and weights that are read or written."""
        return self.read_bytes + self.written_bytes + self.weight_bytes

    @property
    def work_bytes(self) -> float:
        """A rough amount of work in bytes, as :func:`bricks.decompose.plan.work_of` counts it."""
        return 1.0 + self.flops / 20 + self.moved_bytes

    @property
    def size_facts(self) -> SizeFacts:
        """The facts that decide how its latency changes between machine states.

        Kernels count as one where only their layout or their fused operators differ.
        """
        kernel = {CONVOLUTION: f"{CONVOLUTION} {self.tags[0]}", PRODUCT: PRODUCT}.get(self.kind)
        return SizeFacts(
            kernel or self.operator.rpartition(".")[2],
            self.read_bytes + self.written_bytes,
            self.weight_bytes,
        )


def extract_features(brick: Brick) -> BrickFeatures:
    """The features of ``brick``. Of several nodes, the one that is likely to take longest counts.

    Of its context, only what the brick itself says is known; see
    :func:`bricks.predict.context.in_context`.
    """
    model = onnx.ModelProto.FromString(brick.model)
    heaviest, types = _heaviest(model.graph.node), _types(brick, model)
    node = _Node(heaviest, types, model)
    kind = _kind(heaviest)
    tags, sizes = _DESCRIBED[node_form(heaviest)][kind](node)
    read, written, weights = _bytes(brick, node.operator)
    pieces = max(sizes[:2]) / max(1.0, sizes[2]) if kind == STREAM else 0.0
    context_bytes = noted_weight_bytes(model)
    return BrickFeatures(
        kind=kind,
        operator="+".join(brick.operators),
        tags=tags,
        sizes=tuple(math.log2(max(1.0, size)) for size in sizes),
        flops=_flops(brick, node, sizes),
        read_bytes=read,
        written_bytes=written,
        weight_bytes=weights,
        pieces=pieces,
        context_bytes=context_bytes,
        context=Context() if context_bytes is None else Context(context_bytes),
    )


class _Node:
    """A node with the types of its ports, its attributes, and the constants it reads."""

    def __init__(
        self, proto: onnx.NodeProto, types: Mapping[str, ValueType], model: onnx.ModelProto
    ) -> None:
        self.proto, self.types = proto, types
        self.operator = proto.op_type
        self.layout = default_domain(proto.domain)
        self.inputs = [types.get(name) for name in proto.input if name]
        self.outputs = [types.get(name) for name in proto.output if name]
        self._attributes = {a.name: a for a in proto.attribute}
        self._ports = list(proto.input)
        held = {t.name for t in model.graph.initializer if _holds_values(t)}
        self.operands = [types.get(name) for name in proto.input if name and name not in held]
        self._initializers = {t.name: t for t in model.graph.initializer}

    def has(self, port: int) -> bool:
        """Whether something is connected to this input."""
        return port < len(self._ports) and bool(self._ports[port])

    def is_weight(self, port: int) -> bool:
        """Whether this input is an initializer."""
        return self.has(port) and self._ports[port] in self._initializers

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; strings are decoded."""
        found = self._attributes.get(name)
        if found is None:
            return default
        value = helper.get_attribute_value(found)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def constant(self, port: int) -> tuple[int, ...]:
        """The integer values of an input, if the model stores them; else none."""
        tensor = self._initializers.get(self._ports[port]) if self.has(port) else None
        if tensor is None or not _holds_values(tensor):
            return ()
        values = np.asarray(numpy_helper.to_array(tensor))
        return tuple(map(int, values.ravel())) if values.dtype.kind in "iu" else ()

    def shape(self, port: int) -> tuple[int, ...]:
        """The shape of a connected input; empty where it is not known."""
        return _shape(self.inputs[port]) if port < len(self.inputs) else ()

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of the first output; empty where it is not known."""
        return _shape(self.outputs[0]) if self.outputs else ()

    @property
    def dtype(self) -> str:
        """The element types of the first input and the first output, and of blocks of weights."""
        ends = [*self.inputs[:1], *self.outputs[:1]]
        blocks = [f"{self.attribute(name, 0)} {name}" for name in ("bits", "accuracy_level")]
        types = [end.dtype for end in ends if end is not None]
        return ">".join(dict.fromkeys((*types, *(blocks if self.operator in _BLOCKWISE else ()))))


def _holds_values(tensor: onnx.TensorProto) -> bool:
    """Whether values are part of the brick: shapes, axes and the like, not weights."""
    return tensor.data_location != onnx.TensorProto.EXTERNAL


def _shape(type_: ValueType | None) -> tuple[int, ...]:
    return type_.shape if isinstance(type_, TensorType) else ()


def _types(brick: Brick, model: onnx.ModelProto) -> dict[str, ValueType]:
    constants: dict[str, ValueType] = {
        t.name: TensorType(onnx.TensorProto.DataType.Name(t.data_type), tuple(t.dims))
        for t in model.graph.initializer
    }
    between = between_types(model)
    return {**constants, **between, **brick.inputs, **brick.weights, **brick.outputs}


def _kind(node: onnx.NodeProto) -> str:
    return _KINDS[node_form(node)](node)


def _node_kind(node: onnx.NodeProto) -> str:
    if node.op_type in _CONVOLUTIONS:
        return CONVOLUTION
    return PRODUCT if node.op_type in _PRODUCTS else STREAM


def _call_kind(node: onnx.NodeProto) -> str:
    return CONVOLUTION if is_convolution(node) else PRODUCT if is_product(node) else STREAM


_KINDS = {ModelForm.MODELS: _node_kind, ModelForm.PROGRAMS: _call_kind}


def _heaviest(nodes: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
    order = (CONVOLUTION, PRODUCT, STREAM)
    return min(nodes, key=lambda node: order.index(_kind(node)))


def _bytes(brick: Brick, operator: str) -> tuple[float, float, float]:
    """The bytes read, the bytes written, and the bytes of weights read."""
    weights = brick.numeric_weight_bytes
    written = sum(_size_bytes(t) for t in brick.outputs.values())
    read = brick.bytes_moved - weights - written
    if len(brick.operators) == 1 and operator in _SELECTING:
        read, weights = min(read, written), min(weights, written)
    return float(read), float(written), float(weights)


def _flops(brick: Brick, node: _Node, sizes: Sequence[float]) -> float:
    flops = float(brick.flops or 0)
    if len(brick.operators) > 1:
        return flops
    if "Pool" in node.operator and sizes[4] > 1:
        return min(flops, sizes[0] * sizes[4])  # see _stream for windows that are too large
    if node.operator in _CONVOLUTIONS:
        return flops * sizes[5] / max(1, math.prod(_window(node)))
    return flops


def _window(node: _Node) -> tuple[int, ...]:
    """The taps of a convolution in each direction."""
    return _weight(node)[2:]


def _weight(node: _Node) -> tuple[int, ...]:
    """The shape of the weights: the convolution's filter, or the right operand."""
    if node.operator in _BLOCKWISE:
        return int(node.attribute("K", 1)), int(node.attribute("N", 1))
    return node.shape(3 if node.operator.startswith("QLinear") else 1)


def _size_bytes(type_: ValueType) -> int:
    try:
        return type_.size_bytes
    except KeyError:  # strings
        return 0


def _convolution(node: _Node) -> Description:
    weight, data, window = _weight(node), node.shape(0), _window(node)
    transposed = "Transpose" in node.operator
    # A transposed convolution does the work of others' output pixels for each pixel of its input.
    space = (data if transposed else node.output)[2:]
    groups = max(1, int(node.attribute("group", 1)))
    first, second = weight[:2] if len(weight) > 1 else (groups, 1)
    terms, outputs = (first // groups, second) if transposed else (second, first // groups)
    taps = math.prod(window) if transposed else _reaching(node, data[2:], window)
    pixels = math.prod(node.output[:1]) * math.prod(space)
    stride = math.prod(node.attribute("strides", ()))
    dilation = max(node.attribute("dilations", ()), default=1)
    sizes = (
        pixels, space[-1] if space else 1, terms, outputs, groups, taps, stride, dilation,
    )  # fmt: skip
    tags = (
        _form(groups, terms, math.prod(window), data, blocked=bool(node.layout)),
        f"{node.layout}.{node.operator}",
        node.dtype,
        str(node.attribute("activation", "")),
        str(node.layout != "" and node.has(3) and not node.operator.startswith("QLinear")),
    )
    return tags, tuple(map(float, sizes))


def _reaching(node: _Node, data: Sequence[int], window: Sequence[int]) -> float:
    """The average number of window taps that count: kernels skip rows that lie in the padding.

    Where a dilated window exceeds its input, most rows do. Within a row, skipping the padding costs
    about as much time as it saves.
    """
    rank = len(window)
    strides = tuple(node.attribute("strides", ())) or (1,) * rank
    dilations = tuple(node.attribute("dilations", ())) or (1,) * rank
    pads = tuple(node.attribute("pads", ())) or (0,) * rank
    space = node.output[2:]
    given = node.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    known = given and min(map(len, (strides, dilations, pads, data, space))) >= rank
    if not known or max(window, default=0) > _MAX_ROWS:
        return float(math.prod(window))
    reaching = float(window[-1]) if window else 1.0
    outer = zip(window[:-1], strides, dilations, pads, data, space, strict=False)
    for count, stride, dilation, pad, size, steps in outer:
        # A tap reads from ``step * stride - before``, which must lie in the data.
        before, stride = pad - np.arange(count) * dilation, max(1, stride)
        first, last = -(-before // stride), (size - 1 + before) // stride
        steps_in = np.minimum(last, steps - 1) - np.maximum(first, 0) + 1
        reaching *= float(np.maximum(steps_in, 0).sum()) / max(1, steps)
    return reaching


def _form(groups: int, terms: int, taps: int, data: Sequence[int], *, blocked: bool) -> str:
    """The form of a convolution; runtimes have a separate kernel for each."""
    if groups > 1:
        return "depthwise" if terms == 1 else "grouped pointwise" if taps == 1 else "grouped"
    channels = data[1] if len(data) > 1 else math.inf
    if channels < 8:
        return "image"
    if blocked and channels < 16:  # less than a block, for blocks of this size
        return "narrow"
    return "pointwise" if taps == 1 else "dense"


def _product(node: _Node) -> Description:
    left, right, out = node.shape(0), _weight(node), node.output
    flipped = node.attribute("transA", 0)
    terms = (left[-2] if flipped and len(left) > 1 else left[-1]) if left else 1
    columns = out[-1] if len(right) > 1 and out else 1
    rows = math.prod(out) / max(1, columns)
    batch = math.prod(out[:-2]) if len(right) > 2 else 1
    sizes = (batch, rows / max(1, batch), columns, terms)
    tags = (
        # A vector's product streams the other operand; weights are packed before the first run.
        "vector" if sizes[1] <= 1 else "packed" if node.is_weight(1) else "plain",
        node.layout,
        node.dtype,
        str(node.attribute("activation", "")),
        f"{flipped}{node.attribute('transB', 0)}",
        str(node.is_weight(1)),
    )
    return tags, tuple(map(float, sizes))


def _stream(node: _Node) -> Description:
    """All other operators: bytes read and written, and the length of contiguous runs."""
    written = sum(t.elements for t in node.outputs if t is not None)
    arrays = [t for t in node.operands if t is not None and t.elements > 1]
    read = sum(t.elements for t in arrays)
    if node.operator in _SELECTING:
        read = min(read, written)
    pattern, run = _pattern(node)
    window = node.attribute("kernel_shape", ())
    # Some models ask for a window that is larger than its input.
    taps = min(math.prod(window), math.prod(node.shape(0)[2:])) if window else 1
    taps = max(taps, int(node.attribute("size", 1) or 1))
    mode = "/".join(str(node.attribute(name, "")) for name in _MODES)
    tags = (node.layout, node.dtype, pattern, mode)
    return tags, (float(written), float(read), float(run), float(max(1, len(arrays))), float(taps))


def _pattern(node: _Node) -> tuple[str, int]:
    """The memory access pattern, and the number of contiguous elements."""
    shape = node.shape(0)
    if node.operator == "Transpose":
        return _permuted(shape, tuple(node.attribute("perm", ()) or range(len(shape))[::-1]))
    if node.operator in _ALONG_AXIS:
        axis = int(node.attribute("axis", -1))
        whole = node.output if node.operator == "Concat" else shape
        # Split and Concat cut along the axis, so the shortest piece counts.
        pieces = [_shape(t) for t in (*node.inputs, *node.outputs)] if len(whole) else []
        along = [math.prod(p[axis:]) for p in pieces if len(p) == len(whole)]
        inner = math.prod(whole[axis:][1:]) <= 1
        return ("last" if inner else "axis"), min(along, default=1)
    if node.operator.startswith("Reduce"):
        axes = node.constant(1) or tuple(node.attribute("axes", ()) or ())
        inner = not axes or max(a % max(1, len(shape)) for a in axes) == len(shape) - 1
        return ("inner" if inner else "outer"), shape[-1] if shape else 1
    if node.operator in _BROADCASTING:
        return _broadcast(node)
    ends = node.output or shape
    return f"plain{node.attribute('channels_last', 0)}", ends[-1] if ends else 1


def _permuted(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[str, int]:
    """A transpose's pattern and run, with axes of size one dropped and adjacent ones merged."""
    if sorted(perm) != list(range(len(shape))):
        return "unknown", 1
    kept = [axis for axis in perm if shape[axis] > 1]
    blocks: list[list[int]] = []
    for axis in kept:
        previous = blocks[-1][-1] if blocks else None
        between = () if previous is None else shape[previous + 1 : axis]
        if previous is not None and previous < axis and math.prod(between) == 1:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if len(blocks) < 2:
        return "same", math.prod(shape)
    starts = [block[0] for block in blocks]
    moved = "one" if _moves_one(starts) else "several"
    if blocks[-1][-1] == max(kept):
        return f"{moved} outside", math.prod(shape[axis] for axis in blocks[-1])
    return f"{moved} inside", shape[max(kept)]


def _moves_one(order: Sequence[int]) -> bool:
    """Whether moving one axis leaves the others in order: runtimes have a fast path for that."""
    rests = ([*order[:i], *order[i + 1 :]] for i in range(len(order)))
    return any(rest == sorted(rest) for rest in rests)


def _broadcast(node: _Node) -> tuple[str, int]:
    """The innermost stretch over which all operands have the same access pattern."""
    out = node.output
    ports = node.inputs[:1] if node.operator == "Expand" else node.inputs
    smallest = min(map(_shape, ports), key=math.prod, default=())
    size = math.prod(smallest)
    if size <= 1:
        return "scalar", math.prod(out)
    if size == math.prod(out):
        return "equal", size
    padded = (1,) * (len(out) - len(smallest)) + smallest
    same = len(padded) == len(out) and padded[-1] == out[-1]
    run = 1
    for ours, theirs in zip(reversed(padded), reversed(out), strict=False):
        if (ours == theirs) != same and theirs > 1:
            break
        run *= theirs
    return ("tail" if same else "repeated"), run


_DESCRIBED: Mapping[ModelForm, Mapping[str, Callable[[_Node], Description]]] = {
    ModelForm.MODELS: {CONVOLUTION: _convolution, PRODUCT: _product, STREAM: _stream},
    ModelForm.PROGRAMS: {
        CONVOLUTION: lambda node: described_convolution(node.proto, node.types),
        PRODUCT: lambda node: described_product(node.proto, node.types),
        STREAM: _stream,
    },
}
