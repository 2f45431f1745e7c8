"""The type of a row of facts about one operator, or about several operators with equal facts.

Must not know the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import onnx

from bricks.operators.node import Node

if TYPE_CHECKING:
    from bricks.operators.restrictions import Restrict

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
    """Ports whose values belong to a model's identity even as floats (``operators.steering``).

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
