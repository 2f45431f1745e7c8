"""Tags and sizes of a brick's operators, in the order of ``features.TAGS`` and ``SIZES``.

Those of convolutions and products are their loops; all other operators are streams through memory.
ONNX nodes and calls of recorded programs have the same tags and sizes, so that an unmeasured kernel
is predicted from kernels with the same loops. Some types of a node may be unknown. Must not know
latencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.graph.program import Call, call_of
from bricks.graph.topology import default_domain
from bricks.graph.types import TensorType
from bricks.operators.node import Node
from bricks.operators.operator import Access
from bricks.operators.registry import operator_of, plain_name

if TYPE_CHECKING:
    from bricks.graph.types import ValueType
    from bricks.operators.operator import Features

Description = tuple[tuple[str, ...], tuple[float, ...]]

# Of windows with more rows, the padding is not subtracted.
_MAX_ROWS = 1 << 16


def weight_shape(node: BrickNode) -> Shape:
    """The shape of the weights: the convolution's filter, or the right operand."""
    if node.features.blockwise:
        return int(node.attribute("K", 1)), int(node.attribute("N", 1))
    return node.shape(node.features.operands[1])


def node_convolution(node: BrickNode) -> Description:
    """Describe a convolution of an ONNX model."""
    weight, data = weight_shape(node), node.shape(0)
    window, transposed = weight[2:], node.features.transposed
    # A transposed convolution does the work of others' output pixels for each pixel of its input.
    space = (data if transposed else node.output_shape)[2:]
    groups = max(1, int(node.attribute("group", 1)))
    first, second = weight[:2] if len(weight) > 1 else (groups, 1)
    terms, outputs = (first // groups, second) if transposed else (second, first // groups)
    taps = math.prod(window) if transposed else _reaching(node, data[2:], window)
    pixels = math.prod(node.output_shape[:1]) * math.prod(space)
    stride = math.prod(node.attribute("strides", ()))
    dilation = max(node.attribute("dilations", ()), default=1)
    sizes = (
        pixels, space[-1] if space else 1, terms, outputs, groups, taps, stride, dilation,
    )  # fmt: skip
    channels = data[1] if len(data) > 1 else math.inf
    quantised = node.features.operands[1] != 1
    tags = (
        _form(groups, terms, math.prod(window), channels, blocked=bool(node.layout)),
        f"{node.layout}.{node.operator}",
        node.dtype,
        str(node.attribute("activation", "")),
        str(node.layout != "" and node.has(3) and not quantised),
    )
    return tags, tuple(map(float, sizes))


def _reaching(node: BrickNode, data: Sequence[int], window: Sequence[int]) -> float:
    """The average number of window taps that are computed: kernels skip rows in the padding.

    Where a dilated window exceeds its input, most rows are in the padding. Within a row, skipping
    the padding costs about as much time as it saves.
    """
    rank = len(window)
    strides = tuple(node.attribute("strides", ())) or (1,) * rank
    dilations = tuple(node.attribute("dilations", ())) or (1,) * rank
    pads = tuple(node.attribute("pads", ())) or (0,) * rank
    space = node.output_shape[2:]
    explicit = node.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    known = explicit and min(map(len, (strides, dilations, pads, data, space))) >= rank
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


def _form(groups: int, terms: int, taps: int, channels: float, *, blocked: bool = False) -> str:
    """The form of a convolution; runtimes have a separate kernel for each."""
    if groups > 1:
        return "depthwise" if terms == 1 else "grouped pointwise" if taps == 1 else "grouped"
    if channels < 8:
        return "image"
    if blocked and channels < 16:  # less than a block, for blocks of this size
        return "narrow"
    return "pointwise" if taps == 1 else "dense"


def node_product(node: BrickNode) -> Description:
    """Describe a product of matrices of an ONNX model."""
    left, right, out = node.shape(0), weight_shape(node), node.output_shape
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


def call_convolution(node: BrickNode) -> Description:
    """Describe a convolution of a recorded program, or its gradients."""
    call, gradients = call_of(node.proto), node.features.gradients
    first = node.features.operands[0]
    data, weight = (node.shape(_port(call, at)) for at in node.features.operands)
    output = node.shape(_port(call, 0)) if gradients else node.output_shape
    stride, _, dilation, transposed, _, groups = call.arguments[0][first + 3 : first + 9]
    space = (data if transposed else output)[2:]
    terms, outputs = (weight[0] // groups, weight[1]) if transposed else (
        weight[1], weight[0] // groups,
    )  # fmt: skip
    taps, strides = math.prod(weight[2:]), _strides(call, _port(call, first))
    sizes = (
        output[0] * math.prod(space), space[-1] if space else 1, terms, outputs, groups, taps,
        math.prod(stride), max(dilation, default=1),
    )  # fmt: skip
    tags = (
        _form(groups, terms, taps, data[1]),
        f"{node.layout}.{plain_name(node.operator)}",
        node.dtype_at(0),
        # Which gradients are asked for decides how much is computed.
        "".join(str(int(asked)) for asked in call.arguments[0][10]) if gradients else "",
        str(len(strides) > 2 and strides[1] == 1),
    )
    return tags, tuple(map(float, sizes))


def call_product(node: BrickNode) -> Description:
    """Describe a product of matrices of a recorded program."""
    call = call_of(node.proto)
    ports = [_port(call, position) for position in node.features.operands]
    left, right = (node.shape(port) for port in ports)
    sizes = (math.prod(left[:-2]), left[-2], right[-1], left[-1])
    tags = (
        "vector" if left[-2] <= 1 or right[-1] <= 1 else "plain",
        node.layout,
        node.dtype_at(0),
        "sum" if len(node.proto.input) > 2 else "",
        "".join(str(int(_transposed(call, port))) for port in ports),
        "False",
    )
    return tags, tuple(map(float, sizes))


def _port(call: Call, position: int) -> int:
    """The number, among a call's tensors, of the argument at a position."""
    reference: dict[str, int] = call.arguments[0][position]
    return int(reference["t"])


def _strides(call: Call, port: int) -> Shape:
    return call.ports[port].strides if call.ports else ()


def _transposed(call: Call, port: int) -> bool:
    """Whether a matrix is stored in column-major order."""
    strides = _strides(call, port)
    return len(strides) > 1 and strides[-2] < strides[-1]


_MODES = ("mode", "reduction", "coordinate_transformation_mode", "nearest_mode", "direction")


def node_stream(node: BrickNode) -> Description:
    """Describe a stream: elements read and written, and the length of contiguous runs."""
    written = sum(t.elements for t in node.output_types if t is not None)
    arrays = [t for t in node.operands if t is not None and t.elements > 1]
    read = sum(t.elements for t in arrays)
    if node.features.selects:
        read = min(read, written)
    pattern, run = _pattern(node)
    window = node.attribute("kernel_shape", ())
    # Some models ask for a window that is larger than its input.
    taps = min(math.prod(window), math.prod(node.shape(0)[2:])) if window else 1
    taps = max(taps, int(node.attribute("size", 1) or 1))
    mode = "/".join(str(node.attribute(name, "")) for name in _MODES)
    tags = (node.layout, node.dtype, pattern, mode)
    return tags, (float(written), float(read), float(run), float(max(1, len(arrays))), float(taps))


def _pattern(node: BrickNode) -> tuple[str, int]:
    """The memory access pattern, and the number of contiguous elements."""
    shape = node.shape(0)
    access = node.features.access
    if access is Access.PERMUTED:
        return _permuted(shape, tuple(node.attribute("perm", ()) or range(len(shape))[::-1]))
    if access in (Access.ALONG_AXIS, Access.JOINING):
        axis = int(node.attribute("axis", -1))
        full_shape = node.output_shape if access is Access.JOINING else shape
        # Split and Concat cut along the axis, so the shortest piece counts.
        pieces = (
            [shape_of(t) for t in (*node.input_types, *node.output_types)]
            if len(full_shape)
            else []
        )
        along = [math.prod(p[axis:]) for p in pieces if len(p) == len(full_shape)]
        inner = math.prod(full_shape[axis:][1:]) <= 1
        return ("last" if inner else "axis"), min(along, default=1)
    if access is Access.REDUCING:
        axes = node.constant(1) or tuple(node.attribute("axes", ()) or ())
        inner = not axes or max(a % max(1, len(shape)) for a in axes) == len(shape) - 1
        return ("inner" if inner else "outer"), shape[-1] if shape else 1
    if access in (Access.BROADCASTING, Access.EXPANDING):
        out = node.output_shape
        expanding = node.features.access is Access.EXPANDING
        operands = node.input_types[:1] if expanding else node.input_types
        smallest = min(map(shape_of, operands), key=math.prod, default=())
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
    ends = node.output_shape or shape
    return f"plain{node.attribute('channels_last', 0)}", ends[-1] if ends else 1


def _permuted(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[str, int]:
    """A transpose's pattern and run, with axes of size one dropped and adjacent ones merged."""
    if sorted(perm) != list(range(len(shape))):
        return "unknown", 1
    long_axes = [axis for axis in perm if shape[axis] > 1]
    blocks: list[list[int]] = []
    for axis in long_axes:
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
    if blocks[-1][-1] == max(long_axes):
        return f"{moved} outside", math.prod(shape[axis] for axis in blocks[-1])
    return f"{moved} inside", shape[max(long_axes)]


def _moves_one(order: Sequence[int]) -> bool:
    """Whether moving one axis leaves the others in order: runtimes have a fast path for that."""
    rests = ([*order[:i], *order[i + 1 :]] for i in range(len(order)))
    return any(rest == sorted(rest) for rest in rests)


Shape = tuple[int, ...]


class BrickNode(Node):
    """A node with the ``types`` of its values by name; ``constants`` are the initializers."""

    @property
    def features(self) -> Features:
        """The facts about its operator."""
        return operator_of(self.proto).features

    @property
    def layout(self) -> str:
        """The domain of its operator, which stands for the layout of its data."""
        return default_domain(self.proto.domain)

    @property
    def input_types(self) -> list[ValueType | None]:
        """The types of the connected inputs."""
        return [self.types.get(name) for name in self.proto.input if name]

    @property
    def output_types(self) -> list[ValueType | None]:
        """The types of the connected outputs."""
        return [self.types.get(name) for name in self.proto.output if name]

    @property
    def operands(self) -> list[ValueType | None]:
        """The types of the connected inputs, without constants such as shapes and axes."""
        names = [name for name in self.proto.input if name and not self._is_stored(name)]
        return [self.types.get(name) for name in names]

    def is_weight(self, port: int) -> bool:
        """Whether this input is an initializer."""
        return self.name_at(port) in self.constants

    def constant(self, port: int) -> Shape:
        """Return the integer values of an input, if the brick stores them; else an empty tuple."""
        if not self._is_stored(self.name_at(port)):
            return ()
        values = np.asarray(numpy_helper.to_array(self.constants[self.name_at(port)]))
        return tuple(map(int, values.ravel())) if values.dtype.kind in "iu" else ()

    def _is_stored(self, name: str) -> bool:
        """Whether the brick stores the values of ``name``, such as shapes and axes; not weights."""
        tensor = self.constants.get(name)
        return tensor is not None and tensor.data_location != onnx.TensorProto.EXTERNAL

    def shape(self, port: int) -> Shape:
        """The shape of an input; empty where it is not known."""
        return shape_of(self.types.get(self.name_at(port)))

    @property
    def output_shape(self) -> Shape:
        """The shape of the first output; empty where it is not known."""
        return shape_of(self.output_types[0]) if self.output_types else ()

    @property
    def dtype(self) -> str:
        """The element types of the first input and the first output, and of blocks of weights."""
        ends = [*self.input_types[:1], *self.output_types[:1]]
        names = [end.dtype for end in ends if end is not None]
        if self.features.blockwise:
            names += [f"{self.attribute(name, 0)} {name}" for name in ("bits", "accuracy_level")]
        return ">".join(dict.fromkeys(names))


def shape_of(type_: ValueType | None) -> Shape:
    """The shape of a tensor; empty for other values, and where the type is not known."""
    return type_.shape if isinstance(type_, TensorType) else ()


def node_types(model: onnx.ModelProto, stated: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The types of initializers and the ``stated`` ones, by the names of values."""
    constants: dict[str, ValueType] = {
        t.name: TensorType(onnx.TensorProto.DataType.Name(t.data_type), tuple(t.dims))
        for t in model.graph.initializer
    }
    return {**constants, **stated}
