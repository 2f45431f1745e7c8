"""Where the values of a plan lie while it runs: the questions that every kind of memory answers.

A runtime that optimises a graph plans its memory ahead: values lie at offsets in a region
(:mod:`bricks.decompose.planned`). A recorded program allocates each result when a call makes it
(:mod:`bricks.decompose.allocated`). Whoever walks, recomposes or counts bytes asks the plan's
memory, and does not ask which of the two it is. Frozen data; must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bricks.decompose.occurrence import Occurrence
from bricks.graph.containers import ValueType

# Roles of memory: results that later phases read, parameters' gradients, and what a phase frees.
ACTIVATION, GRADIENT, TEMPORARY = "activation", "gradient", "temporary"


class Flow(Protocol):
    """The values of a model, who makes them and who reads them: what a plan is to its memory.

    ``types[v]`` is the type of value ``v``; ``inputs`` and ``outputs`` are those of the model.
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
    """A phase of a step: its name, how many occurrences it has, and how many calls these make.

    ``displaced`` is the sum over its calls of the share of a core's caches that each displaces (see
    ``graph/program_traffic``); None in plans of earlier versions, which do not tell.
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
        told = None if displaced is None else float(displaced)
        return cls(str(name), int(occurrences), int(calls), told)


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Where a walk finds each value: ``offsets`` by value number, in a region of ``size_bytes``.

    An offset is in bytes; None stands for a buffer of the value's own. In a region of no bytes,
    offsets are numbers of slots, in which tensors are handed on.
    """

    offsets: tuple[int | None, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """The value in ``slot``, which the occurrence ``made`` makes and that ``freed`` frees.

    Positions in the plan; ``freed`` is None if the value stays. ``size_bytes`` is 0 for a value in
    memory that is there already.
    """

    slot: int
    made: int
    freed: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A piece of memory, once for all values in it, live from occurrence ``begin`` to ``end``.

    Both are positions, and included. ``role`` is :data:`ACTIVATION`, :data:`GRADIENT` or
    :data:`TEMPORARY`.
    """

    size_bytes: int
    begin: int
    end: int
    role: str


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """Bytes that are live at the peak of a step.

    ``activation_bytes`` are results of the forward pass that later phases read, and the inputs;
    ``temporary_bytes`` are results that their own phase frees. ``phase`` is that of the peak.
    """

    parameter_bytes: int
    activation_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    temporary_bytes: int
    phase: str


class Memory(Protocol):
    """Where the values of a plan lie while it runs, and in which phases it runs.

    Methods take the plan itself as ``flow``. ``gradients`` are the values that are the parameters'
    gradients after a training step.
    """

    @property
    def kind(self) -> str:
        """Whether a run is inference or a training step."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of a run, in order; none where a run is a single call of the runtime."""

    @property
    def gradients(self) -> tuple[int, ...]:
        """The values that the parameters' gradients are."""

    @property
    def outdated(self) -> bool:
        """Whether an earlier version made it, which did not note all that estimates need."""

    @property
    def repeatable(self) -> bool:
        """Whether an occurrence may run again at once, and finds the memory as before."""

    @property
    def processor_specific(self) -> bool:
        """Whether it depends on the processor for which a runtime has optimised the graph."""

    @property
    def overheads(self) -> tuple[tuple[str, Phase], ...]:
        """Each phase, after the name of the probes that tell its call overhead."""

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The phase of each occurrence, in order; empty where there are no phases."""

    def storage(self, value: int) -> int:
        """The first value in the same memory; -1 for memory that is there before the run."""

    def layout(self, flow: Flow) -> MemoryLayout:
        """Where a walk over occurrences of ``flow`` finds each value."""

    def allocations(self, flow: Flow) -> tuple[Allocation, ...]:
        """What a run allocates and frees, in order; nothing where memory is planned ahead."""

    def spans(self, flow: Flow) -> Iterator[LiveRange]:
        """The pieces of memory that a run takes beyond what is there before it."""

    def peak(self, flow: Flow) -> LiveMemory | None:
        """What is live at the peak of a run; None where that is the runtime's planner to say."""

    def negligible(
        self, flow: Flow, tiny: Callable[[str], bool], computes_nothing: Callable[[str], bool]
    ) -> frozenset[int]:
        """The occurrences that do next to nothing, by position: views, and tiny calls.

        ``tiny`` and ``computes_nothing`` say of a brick, by its key, whether it moves next to no bytes, and
        whether it computes nothing.
        """

    def problem(self, occurrences: int, values: int) -> str | None:
        """The first contradiction to a plan of this many occurrences and values; None if none."""

    def to_json(self) -> Mapping[str, Any]:
        """What a plan's JSON object has of it, which :class:`Plan` reads."""
