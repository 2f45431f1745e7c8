"""The memory of a plan's values while it runs: the interface of both kinds of memory.

A runtime that optimises a graph plans its memory ahead: values lie at offsets in a region
(:mod:`bricks.decompose.planned_memory`). A recorded program allocates each result when a call makes
it (:mod:`bricks.decompose.allocated`). Walking, recomposing and counting bytes use a plan's memory
without knowing its kind. The peak of live memory is by role, without workspaces of kernels. Frozen
data; must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from bricks.graph.call import INFERENCE

if TYPE_CHECKING:
    from bricks.decompose.occurrence import Occurrence
    from bricks.graph.types import ValueType

# Roles of memory: results that later phases read, parameters' gradients, and results that are freed
# by their own phase.
ACTIVATION, GRADIENT, TEMPORARY = "activation", "gradient", "temporary"


class Flow(Protocol):
    """The data flow of a model: its values, their producers and their readers.

    ``types[v]`` is the type of value ``v``; ``inputs`` and ``outputs`` are the model's.
    """

    @property
    def inputs(self) -> tuple[int, ...]:
        """The model's inputs."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The model's outputs."""

    @property
    def types(self) -> tuple[ValueType, ...]:
        """The type of each value."""

    @property
    def occurrences(self) -> Sequence[Occurrence]:
        """The occurrences in execution order."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a step, with the numbers of its occurrences and of their calls.

    ``displaced`` is the sum, over its calls, of the share of a core's caches that a call evicts
    (``graph/program``); None in plans of earlier versions, which do not record it.
    """

    name: str
    occurrences: int
    calls: int
    displaced: float | None = 0.0

    def to_json(self) -> list[Any]:
        """A JSON list; the inverse is :meth:`from_json`."""
        return [self.name, self.occurrences, self.calls, self.displaced]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Phase:
        """The inverse of :meth:`to_json`; ValueError or TypeError for invalid data."""
        name, occurrences, calls, *more = data
        (displaced,) = more or (None,)
        evicted = None if displaced is None else float(displaced)
        return cls(str(name), int(occurrences), int(calls), evicted)


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Offsets of values, by value number, in a region of ``size_bytes``.

    An offset is in bytes; None is a separate buffer. In a region of no bytes, offsets are numbers
    of tensor handles, by which occurrences pass on their results.
    """

    offsets: tuple[int | None, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation by the occurrence at position ``made``, freed after the one at ``freed``.

    ``slot`` is the tensor handle of the value; ``freed`` is None if the value stays.
    ``size_bytes`` is 0 for a value that shares the memory of another one.
    """

    slot: int
    made: int
    freed: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A piece of memory, however many values share it, and the time while it is live.

    ``begin`` and ``end`` are positions of occurrences, both included. ``role`` is
    :data:`ACTIVATION`, :data:`GRADIENT` or :data:`TEMPORARY`.
    """

    size_bytes: int
    begin: int
    end: int
    role: str


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """Live bytes at the peak of a step, by role; ``phase`` is the phase of the peak.

    ``activation_bytes`` are results of the forward pass that later phases read, and the inputs;
    ``temporary_bytes`` are results that their own phase frees.
    """

    parameter_bytes: int
    activation_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    temporary_bytes: int
    phase: str


class Memory(Protocol):
    """The memory of a plan's values while it runs, and the phases of a run.

    Methods take the plan itself as ``flow``. Defaults are for memory that the runtime plans ahead,
    of a run that is a single call.
    """

    @property
    def kind(self) -> str:
        """Whether a run is inference or a training step."""
        return INFERENCE

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of a run, in order; none where a run is a single call of the runtime."""
        return ()

    @property
    def gradients(self) -> tuple[int, ...]:
        """The values that are the parameters' gradients after a training step."""
        return ()

    @property
    def outdated(self) -> bool:
        """Whether an earlier version recorded it, without all facts that estimates need."""
        return False

    @property
    def repeatable(self) -> bool:
        """Whether an occurrence may run twice in a row on the same memory."""
        return True

    @property
    def processor_specific(self) -> bool:
        """Whether the plan depends on the processor for which a runtime has optimised the graph."""
        return True

    @property
    def overheads(self) -> tuple[tuple[str, Phase], ...]:
        """Pairs of the name of the probes that measure a phase's call overhead, and the phase."""
        return ()

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The phase of each occurrence, in order; empty where there are no phases."""
        return ()

    def storage(self, value: int) -> int:
        """The first value in the same memory; -1 for memory that was allocated before the run.

        By default the value itself: the layout decides on shared buffers.
        """
        return value

    def layout(self, flow: Flow) -> MemoryLayout:
        """The offsets of values in a walk over occurrences of ``flow``."""

    def allocations(self, flow: Flow) -> tuple[Allocation, ...]:
        """The allocations of a run, in order; none where memory is planned ahead."""
        return ()

    def spans(self, flow: Flow) -> Iterator[LiveRange]:
        """The live ranges of all memory that a run allocates."""

    def peak(self, flow: Flow) -> LiveMemory | None:
        """Live bytes at the peak of a run.

        None where it depends on the runtime's arena, workspaces and forms of weights
        (``compose/memory``).
        """
        return None

    def negligible(
        self, flow: Flow, tiny: Callable[[str], bool], computes_nothing: Callable[[str], bool]
    ) -> frozenset[int]:
        """The positions of occurrences that cost only their call: views and tiny calls.

        ``tiny`` says of a brick's key whether it moves few bytes, ``computes_nothing`` whether it
        has no operations. By default none: a runtime has fused or removed such nodes.
        """
        return frozenset()

    def problem(self, occurrences: int, values: int) -> str | None:
        """The first contradiction to a plan of this many occurrences and values; None if none."""
        return None

    def to_json(self) -> Mapping[str, Any]:
        """Its entries in the JSON object of a :class:`Plan`."""
        return {}


def live_at_peak(spans: Iterable[LiveRange], occurrences: int) -> tuple[int, dict[str, int]]:
    """Return the first position with the most live bytes, and the live bytes there by role."""
    pieces = list(spans)
    changes = [0] * (occurrences + 1)
    for span in pieces:
        changes[span.begin] += span.size_bytes
        changes[span.end + 1] -= span.size_bytes
    live = list(accumulate(changes[:-1]))
    at = live.index(max(live)) if live else 0
    live_bytes = dict[str, int]()
    for span in pieces:
        if span.begin <= at <= span.end:
            live_bytes[span.role] = live_bytes.get(span.role, 0) + span.size_bytes
    return at, live_bytes
