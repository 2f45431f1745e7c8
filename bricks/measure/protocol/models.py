"""Requests about a model: its graphs, a profile, peaks of memory, and checks of its outputs.

A file of a few bytes can make the worker optimise a graph, infer its shapes, or run it once without
end. So each request has limits on its time and memory, which grow with the model: its size implies
an ordinary cost, with a wide margin. A request that exceeds it has gone wrong, or the file is
hostile. Must not know how requests are answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.decompose.lowering import AS_WRITTEN, UNKNOWN, Contents, Lowering
from bricks.decompose.plan import Plan
from bricks.errors import ModelError
from bricks.graph.topology import all_nodes
from bricks.graph.types import ELEMENT_BITS, ValueType
from bricks.graph.view import graph_of, without_values
from bricks.measure.conditions import GRAPH_TIMEOUT_S
from bricks.measure.protocol.request import Request
from bricks.samples.evaluation import Evaluation, Verification
from bricks.samples.whole_models import MemoryPeaks, SizeChanges, TypicalRun

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph to cut: a ``model`` without weights, and the type of each value by its name.

    The types of the values ``observed`` depend on data, and come from one run. ``contents`` has no
    steering values: :class:`ReadValues` returns computed ones. ``notes`` are sentences about the
    graph for its user.
    """

    model: bytes
    types: Mapping[str, ValueType]
    observed: tuple[str, ...] = ()
    lowering: Lowering = AS_WRITTEN
    contents: Contents = UNKNOWN
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadExecuted(Request[TypedGraph]):
    """The graph that the runtime executes for a model.

    Types and contents that depend on data follow from the model's own weights, if they are in
    ``folder``.
    """

    model: bytes
    key: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ReadSource(Request[TypedGraph]):
    """The graph of a model called ``name`` as its file has it."""

    name: str
    model: bytes


@dataclass(frozen=True, slots=True)
class ReadValues(Request[Mapping[str, tuple[float, ...]]]):
    """The flattened contents of the values called ``names`` of the graph of ``model``.

    ``source`` is the model as written, whose weights lie in ``folder``.
    """

    model: bytes
    names: tuple[str, ...]
    source: bytes
    folder: str


@dataclass(frozen=True, slots=True)
class RecordProgram(Request[bytes]):
    """Record a step of a program as a model, without weights.

    ``entry`` is a file in ``folder`` or a module, and its function, which gets ``options``.
    """

    entry: str
    folder: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuantiseModel(Request[None]):
    """Write a quantised model to the file ``target``, with the tool of the runtime ``tool``.

    ``location`` is that of its offer, ``method`` a value of
    :class:`~bricks.backends.quantising.QuantisationMethod`. The ``model`` has its own weights if
    they are in ``folder``; all others, and the inputs that calibrate it, are synthetic.
    """

    model: bytes
    folder: str
    tool: str
    location: str
    method: str
    target: str


@dataclass(frozen=True, slots=True)
class ProfileModel(Request[TypicalRun]):
    """Run a model several times under the runtime's own profiler."""

    key: str
    model: bytes
    streams: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureMemory(Request[MemoryPeaks]):
    """Load a model as its users do, and run it, in this process, which must be fresh.

    With ``inline``, weights are in the model's own file.
    """

    key: str
    model: bytes
    inline: bool = False


@dataclass(frozen=True, slots=True)
class RunSizes(Request[SizeChanges]):
    """Run a model with open dimensions at several sizes in turn: shapes of its inputs by name."""

    key: str
    model: bytes
    sizes: tuple[Mapping[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class VerifyModel(Request[Verification]):
    """Compare a model with its ``bricks``, by key, chained along its ``plan``.

    ``folder`` has the model's own weights.
    """

    name: str
    folder: str
    model: bytes
    plan: Plan
    bricks: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class WrittenReference:
    """The ``reason`` why a reference has no values, or None; whether it has the model's weights."""

    reason: str | None
    own_weights: bool


@dataclass(frozen=True, slots=True)
class WriteReference(Request[WrittenReference]):
    """Write the inputs, weights and outputs of a model in double precision to ``file``.

    ``folder`` has the model's own weights; with ``every``, the outputs of all nodes. Without
    ``values``, inputs and weights alone.
    """

    name: str
    folder: str
    model: bytes
    file: str
    every: bool
    values: bool = True


@dataclass(frozen=True, slots=True)
class EvaluateModel(Request[Evaluation]):
    """Run a model ``repeats`` times, and compare its outputs with the reference in ``file``.

    A program without a file is compared with itself in double precision; with ``gradients``, its
    gradients in double are compared with finite differences. ``names`` are the outputs of the ONNX
    model that a program computes. ``outputs`` is a file for the outputs of the first run. A value
    diverges from its reference beyond ``tolerance``; None: the tolerance of its type.
    """

    model: bytes
    repeats: int
    file: str | None = None
    tolerance: float | None = None
    outputs: str | None = None
    gradients: bool = False
    names: tuple[str, ...] | None = None


# The least seconds of a request.
# With these, a host ten times slower than any tested one stays within the limits.
MIN_REQUEST_S = 5.0
_NODE_S = 0.002
_WEIGHT_BYTES_PER_S = 50e6
_FLOPS = 5e9
# Of the model without weights, which a tree ensemble fills with lists of its nodes.
_MODEL_BYTES_PER_S = 1e6

_MIN_BYTES = 1 << 30
# Copies of the weights: a runtime rewrites weights that it folds or reorders.
_COPIES = 2
# Bytes of a session for each byte of a model without weights: a runtime expands lists of trees.
SESSION_BYTES = 16
# Bytes of activations in one run for each element of an input: a few hundred channels.
_BYTES_PER_ELEMENT = 1 << 12


def allowed_s(proto: onnx.ModelProto, *, times: int = 1) -> float:
    """Seconds for one request about ``proto``, a model without weights, at most GRAPH_TIMEOUT_S.

    ``times`` is how often the request processes the whole model.
    """
    weights = list(without_values(proto).values())
    nodes = sum(1 for _ in all_nodes(proto.graph))
    # Each weight takes part once for each position: a token, or a row of an image.
    positions = sum(map(_positions, _inputs(proto)))
    flops = 2 * positions * sum(type_.elements for type_ in weights)
    seconds = MIN_REQUEST_S + _NODE_S * nodes + int(proto.ByteSize()) / _MODEL_BYTES_PER_S
    seconds += _bytes(weights) / _WEIGHT_BYTES_PER_S + flops / _FLOPS
    return min(GRAPH_TIMEOUT_S, times * seconds)


def allowed_bytes(proto: onnx.ModelProto) -> int:
    """Further bytes that one request about ``proto``, a model without weights, may allocate."""
    elements = sum(type_.elements for type_ in _inputs(proto))
    weights = _bytes(without_values(proto).values())
    lists = SESSION_BYTES * int(proto.ByteSize())
    return _MIN_BYTES + _COPIES * weights + _BYTES_PER_ELEMENT * elements + lists


def _inputs(proto: onnx.ModelProto) -> list[ValueType]:
    try:
        graph = graph_of(proto)
    except ModelError:  # the worker will report it
        return []
    return [graph.types[name] for name in graph.inputs]


def _positions(type_: ValueType) -> int:
    return math.prod(type_.shape[:-1]) if type_.floating else type_.elements


def _bytes(types: Iterable[ValueType]) -> int:
    """The size of all ``types`` whose elements have a fixed size."""
    return sum(t.size_bytes for t in types if t.dtype in ELEMENT_BITS)
