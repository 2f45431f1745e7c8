"""The type of a row of facts about one operator, or about several operators with equal facts.

Rules that several families share stand here too. Those for arithmetic count a multiply-add as two
operations, an elementary function as one, whatever the function. Restrictions of integer inputs are
stated by rules, which :mod:`bricks.operators.integer_ranges` applies. Must not know the rows, nor
how values are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import onnx

from bricks.operators.node import Node

# The operations of a node; None where they are unknown.
Work = Callable[[Node], int | None]
# Sizes in bytes of the buffers that ONNX Runtime's kernel of a node allocates, for a number of
# threads.
Workspace = Callable[[Node, int], Sequence[int]]
# The values to which a node passes on the contents of the input at a port.
Passes = Callable[[onnx.NodeProto, int], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Dependence:
    """The latency of an operator depends on the values at its input ``port``.

    ``facts`` are the parts of a sketch (``graph.sketch``) on which it depends; if there are none,
    random values represent all. With ``large_table``, the values are indices, which matter if the
    table exceeds the caches. A brick never reads another brick's results in place of ``decisive``
    values; other values matter less, such as large numbers, which take longer.
    """

    port: int
    facts: tuple[str, ...] = ()
    large_table: bool = False
    decisive: bool = True


class WeightForm(Enum):
    """The form in which ONNX Runtime's kernel keeps a weight."""

    MAPPED = "mapped"  # as in the file, which is memory-mapped
    PACKED = "packed"  # columns of a matrix rounded up, for the kernel's inner loop
    PACKED_BY_FUSION = "packed by fusion"  # the same, for nodes that fusion made, which come last
    REARRANGED = "rearranged"  # of the same size, in place of the original
    REARRANGED_IN_ARENA = "rearranged in arena"  # the same, in the arena that holds values
    BLOCKED = "blocked"  # channels in blocks


class Loops(Enum):
    """The inner loops of an operator; latencies are learned separately for each kind."""

    CONVOLUTION = "convolution"
    PRODUCT = "product"
    STREAM = "stream"


class Access(Enum):
    """The access pattern of a stream."""

    PLAIN = "plain"
    PERMUTED = "permuted"
    ALONG_AXIS = "along axis"
    JOINING = "joining"  # along the axis of the output
    REDUCING = "reducing"
    BROADCASTING = "broadcasting"
    EXPANDING = "expanding"  # broadcasting of the first input


@dataclass(frozen=True, slots=True)
class Features:
    """Facts from which features of a brick are extracted (``predict.features``).

    ``operands`` are the ports of the data and of the weight, or of the two factors. A convolution
    may be ``transposed``, or compute ``gradients``; weights may be ``blockwise``, of a few bits
    each. A stream that ``selects`` reads no more than it writes; one with a ``window`` slides it
    over its input.
    """

    loops: Loops = Loops.STREAM
    operands: tuple[int, int] = (0, 1)
    transposed: bool = False
    gradients: bool = False
    blockwise: bool = False
    access: Access = Access.PLAIN
    selects: bool = False
    window: bool = False

    @property
    def slides(self) -> bool:
        """Whether a window slides over the input; strides may leave out parts of the input."""
        return self.window or self.loops is Loops.CONVOLUTION


@dataclass(frozen=True, slots=True)
class Steering:
    """Ports whose values belong to a model's identity even as floats (``operators.dependence``).

    Values at ``ports`` steer shapes or the choice of an algorithm; with ``scalars_only`` only
    scalars do. ``quantization`` are ports for scales and zero points, which decide on fusions.
    """

    ports: tuple[int, ...] = ()
    scalars_only: bool = False
    quantization: tuple[int, ...] = ()


STREAM = Features()
NO_STEERING = Steering()


@dataclass(frozen=True, slots=True)
class Operator:
    """Facts about operators, each optional; a fact that is missing is unknown, never guessed.

    ``onnx`` are names of operators, after their domain and a dot unless it is ONNX's own;
    ``aten`` are PyTorch's names, without the overload and without the ``_`` of in-place operators.

    ``work`` counts operations, a multiply-add as two. ``values`` are the inputs whose values decide
    a node's latency. Integer inputs are subject to ``restrict``; ``passes`` maps an input to the
    outputs with its values. ``sized_by_data`` is whether the sizes of outputs depend on data,
    ``reads_shapes`` whether a node reads only the shapes of its inputs. ``workspace`` are the sizes
    of the buffers that ONNX Runtime's kernel allocates while it runs, ``weights`` the form in which
    it keeps weights. Runtimes fuse an ``absorbed`` operator into a product or convolution. The
    output of a ``view`` may share the memory of its input.
    """

    onnx: tuple[str, ...] = ()
    aten: tuple[str, ...] = ()
    work: Work | None = None
    values: tuple[Dependence, ...] = ()
    restrict: Restrict | None = None
    passes: Passes | None = None
    steering: Steering = NO_STEERING
    sized_by_data: bool = False
    reads_shapes: bool = False
    workspace: Workspace | None = None
    weights: WeightForm = WeightForm.MAPPED
    features: Features = STREAM
    absorbed: bool = False
    view: bool = False

    @property
    def for_calls(self) -> Operator:
        """The row for recorded calls: names, work, values, and features other than a stream's."""
        streamed = self.features.loops is Loops.STREAM
        features = STREAM if streamed else self.features
        return Operator(aten=self.aten, work=self.work, values=self.values, features=features)


# Of an element of the buffers of kernels.
FLOAT_BYTES = 4


def require_floats(node: Node, inputs: int = 2) -> None:
    """Raise ``LookupError`` unless the first ``inputs`` are floats."""
    if any(node.tensor_at(port).dtype != "FLOAT" for port in range(inputs)):
        raise LookupError(f"{node.operator} of other types than float")


def no_workspace(node: Node, threads: int) -> Sequence[int]:
    """The workspace of a kernel that needs no buffer between inputs and outputs."""
    return ()


def decided_by(port: int, *facts: str) -> tuple[Dependence, ...]:
    """Return a dependence on the values at ``port``; ``facts`` are the parts of a sketch."""
    return (Dependence(port, facts),)


def indexed_by(port: int, *facts: str, decisive: bool = False) -> tuple[Dependence, ...]:
    """Return a dependence on the indices at ``port`` into a large table."""
    return (Dependence(port, facts, large_table=True, decisive=decisive),)


def to_first(*ports: int) -> Passes:
    """Return a rule that passes these inputs on to the first output; others are not data."""
    return lambda node, port: iter(node.output[:1] if port in ports else ())


def from_any(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """Passes every input on to the first output."""
    return iter(node.output[:1])


def names(text: str) -> tuple[str, ...]:
    """Split ``text`` into names at its spaces."""
    return tuple(text.split())


def no_work(node: Node) -> int:
    """The work of moving, selecting and converting data, and of constants: no operation."""
    return 0


def per_output(times: int) -> Work:
    """Return a rule of ``times`` operations for each element of the first output."""
    return lambda node: times * node.output.elements


def per_input(times: int) -> Work:
    """Return a rule of ``times`` operations for each element of the input data."""
    return lambda node: times * node.data_elements


EXACT: Final = "exact"  # the values must lie in low … high
MASKING: Final = "masking"  # any value runs, 1 means valid
STEERING: Final = "steering"  # the value gives a shape, count, axis or branch: none is safe

NOT_INTEGER: Final = frozenset(
    number
    for name, number in onnx.TensorProto.DataType.items()
    if "FLOAT" in name or name in ("DOUBLE", "BOOL")
)
_QUANTISED: Final = ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2", "INT16", "UINT16")
# Zero points of weights: tools quantise weights around the middle. Kernels depend on it: ONNX
# Runtime's depthwise convolution takes fifty times as long where channels have different ones.
_MIDDLE: Final = {"INT8": 0, "UINT8": 128}


@dataclass(frozen=True, slots=True)
class Restriction:
    """The restriction of a value by one use; ``EXACT`` values are from ``low`` below ``high``."""

    kind: str
    why: str
    low: int = 0
    high: int = 0


# The restriction of a node on the input at a port; None if there is none.
Restrict = Callable[[Node, int], Restriction | None]


def first_of(*rules: Restrict) -> Restrict:
    """Return a rule that returns the first restriction of ``rules``."""

    def rule(node: Node, port: int) -> Restriction | None:
        return next(
            (restriction for restrict in rules if (restriction := restrict(node, port))), None
        )

    return rule


def shape_at(*ports: int) -> Restrict:
    """Return a rule for inputs that give shapes, counts or axes, or choose a branch."""

    def rule(node: Node, port: int) -> Restriction | None:
        if port not in ports:
            return None
        return Restriction(
            STEERING, f"{node.operator} takes a shape, count, axis or branch from it"
        )

    return rule


def mask(node: Node, port: int) -> Restriction:
    """Restrict any input to a mask."""
    return Restriction(MASKING, f"a mask for {node.operator}")


def mask_at(*ports: int) -> Restrict:
    """Return a rule that restricts these inputs to masks."""
    return lambda node, port: mask(node, port) if port in ports else None


def quantised(node: Node, port: int) -> Restriction | None:
    """Restrict quantised data to the whole range of a type of few bits."""
    dtype = node.dtype_at(port)
    if dtype not in _QUANTISED:
        return None
    bits = int(dtype.removeprefix("U").removeprefix("INT"))
    low = 0 if dtype.startswith("U") else -(1 << bits - 1)
    return Restriction(EXACT, f"quantised data of {node.operator}", low, low + (1 << bits))


def quantised_around(zero_point: int) -> Restrict:
    """Return a rule for quantised data; the port ``zero_point`` has the zero points of weights."""

    def rule(node: Node, port: int) -> Restriction | None:
        middle = _MIDDLE.get(node.dtype_at(port))
        if port != zero_point or middle is None:
            return quantised(node, port)
        return Restriction(EXACT, f"a zero point of {node.operator}'s weights", middle, middle + 1)

    return rule


def index(node: Node, low: int, high: int) -> Restriction:
    """Restrict an input to indices from ``low`` up to, not including, ``high``."""
    return Restriction(EXACT, f"an index of {node.operator}, from {low} to {high - 1}", low, high)


def length(node: Node, value: int) -> Restriction:
    """Restrict an input to ``value``, the length of a whole sequence."""
    return Restriction(EXACT, f"the sequence length of {node.operator}, {value}", value, value + 1)


def axis_index(default_axis: int) -> Restrict:
    """Return a rule for indices at input 1 into the axis of input 0 that an attribute names."""

    def rule(node: Node, port: int) -> Restriction | None:
        shape = node.shape_at(0)
        axis = node.number("axis", default_axis)
        if port != 1 or not shape or not -len(shape) <= axis < len(shape):
            return None
        return index(node, 0, shape[axis])

    return rule
