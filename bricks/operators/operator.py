"""A row of facts about an operator, or about several operators that share all facts.

Must not know which operators there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import onnx

from bricks.operators.node import Node
from bricks.operators.restrictions import Restrict

# The operations of a node; None where they are unknown.
Work = Callable[[Node], int | None]
# Sizes in bytes of what ONNX Runtime's kernel of a node allocates on so many threads.
Workspace = Callable[[Node, int], Sequence[int]]
# The values to which a node passes on the contents of the input at a port.
Passes = Callable[[onnx.NodeProto, int], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Dependence:
    """Values at the input ``port`` decide how long an operator takes.

    ``facts`` are the parts of a sketch (``graph.sketch``) that count; if there are none, random
    values stand for all. Indices of a ``large_table`` count if the table does not fit into caches.
    A brick never reads what another one has left in place of ``decisive`` values; others matter
    less: large numbers take longer, say.
    """

    port: int
    facts: tuple[str, ...] = ()
    large_table: bool = False
    decisive: bool = True


class WeightForm(Enum):
    """The form in which ONNX Runtime's kernel keeps a weight."""

    MAPPED = "mapped"  # as the file has it, which is mapped
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
        """Whether a window slides over the input, which strides may leave out parts of."""
        return self.window or self.loops is Loops.CONVOLUTION


@dataclass(frozen=True, slots=True)
class Steering:
    """Inputs whose values belong to a model's identity even as floats (``operators.steering``).

    They steer shapes or the choice of an algorithm; with ``scalars_only`` if they are one number.
    ``quantization`` are inputs for scales and zero points, which decide on fusions.
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
    ``aten`` are PyTorch's, without the overload and without the ``_`` of operators in place.

    ``work`` counts operations, a multiply-add as two. ``values`` decide how long a node takes.
    Integer inputs are subject to ``restrict``; ``passes`` says which outputs have the values of an
    input. ``sized_by_data`` is whether the data decide on the sizes of outputs, ``reads_shapes``
    whether only the shapes of inputs are read. ``workspace`` is what ONNX Runtime's kernel
    allocates while it runs, ``weights`` the form of the weights that it keeps. Runtimes make an
    ``absorbed`` operator part of a product or convolution, and the output of a ``view`` may be its
    input under another name.
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
        """The facts that hold for recorded calls too: work, values, and what is not streamed."""
        streamed = self.features.loops is Loops.STREAM
        features = STREAM if streamed else self.features
        return Operator(aten=self.aten, work=self.work, values=self.values, features=features)


def no_workspace(node: Node, threads: int) -> Sequence[int]:
    """Nothing: a kernel that writes its result from its inputs."""
    return ()


def decided_by(port: int, *facts: str) -> tuple[Dependence, ...]:
    """Values at ``port`` decide always."""
    return (Dependence(port, facts),)


def indexed_by(port: int, *facts: str, decisive: bool = False) -> tuple[Dependence, ...]:
    """Indices at ``port`` decide where a large table is read or written."""
    return (Dependence(port, facts, large_table=True, decisive=decisive),)


def to_first(*ports: int) -> Passes:
    """Passes these inputs on to the first output: others are indices, masks, counts."""
    return lambda node, port: iter(node.output[:1] if port in ports else ())


def from_any(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """Passes every input on to the first output."""
    return iter(node.output[:1])


def names(text: str) -> tuple[str, ...]:
    """The names in ``text``, which are separated by spaces."""
    return tuple(text.split())
