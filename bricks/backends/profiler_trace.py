"""What a trace of a runtime's own profiler tells: calls, what they took, and where they ran.

A runtime whose profiler writes such files offers a :class:`TraceFormat`. Must not know any runtime,
nor what becomes of the samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class TracedDevice:
    """The GPU on which kernels of a trace ran, called ``name`` by its driver."""

    name: str
    memory_bytes: int
    multiprocessors: int
    capability: str


@dataclass(frozen=True, slots=True)
class TracedArgument:
    """An argument of a call, as the profiler wrote it.

    ``type`` is the type of a tensor's elements or the kind of another argument, empty if the
    profiler wrote nothing of it. ``value`` is the text of numbers. ``shape`` and ``strides`` (in
    elements) are a tensor's, or in a list of tensors those of each.
    """

    type: str
    value: str
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call of ``operator``, its time on the host and its kernels; ``step`` is the step's number.

    ``step`` is None if the profiler was not told where steps begin.
    """

    operator: str
    arguments: tuple[TracedArgument, ...]
    sample: Sample
    step: int | None


@dataclass(frozen=True, slots=True)
class TracedPhase:
    """A phase of a traced step, called ``name``: its seconds on the host, of its calls, how many.

    ``name`` is one of :mod:`bricks.graph.call`.
    """

    name: str
    taken_s: float
    in_calls_s: float
    calls: int


@dataclass(frozen=True, slots=True)
class ProfilerTrace:
    """The calls of a trace in order of their begin, and the phases of its steps.

    ``host_name`` is the network name of the host, None if it is not written. ``device`` is None if
    no kernels were traced. ``unfinished`` counts calls whose kernels are not all in the trace, and
    ``loose_kernels`` kernels that no call has launched; both are left out.
    """

    calls: Sequence[TracedCall]
    phases: Sequence[TracedPhase]
    host_name: str | None
    device: TracedDevice | None
    unfinished: int = 0
    loose_kernels: int = 0


class Unmatched(Enum):
    """Why a traced call is no sample of a brick."""

    UNKNOWN = "no known brick equals it"
    UNNAMED = "the profiler writes too little, and the model that ran is not named"
    FOREIGN = "the profiler writes too little, and the named model makes no such call"
    SEVERAL = "several bricks of the model differ only in what the profiler does not write"
    UNPROVEN = "its size is not written, and no call that reads its results proves one"


@dataclass(frozen=True, slots=True)
class CallMatch:
    """The keys of the bricks that equal a traced call; none if it is ``unmatched``.

    The call may still be one of the ``candidates``, groups of equal bricks of the program that ran,
    if calls that read its results prove which.
    """

    keys: tuple[str, ...] = ()
    unmatched: Unmatched | None = None
    candidates: tuple[tuple[str, ...], ...] = ()


class CallMatcher(ABC):
    """Finds the bricks that equal a traced call."""

    @abstractmethod
    def match(self, call: TracedCall) -> CallMatch:
        """Return the bricks that equal ``call``, as far as the profiler tells."""


class TraceFormat(ABC):
    """The format of the traces that a runtime's profiler writes."""

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Return whether the file begins like such a trace; False if it cannot be read."""

    @abstractmethod
    def read(self, path: Path) -> ProfilerTrace:
        """Read a trace; :class:`~bricks.errors.StoreError` for one that tells too little."""

    @abstractmethod
    def matcher(self, bricks: Mapping[str, Brick], ran: Collection[str]) -> CallMatcher:
        """Return a matcher among ``bricks`` by key.

        ``ran`` are the keys of bricks of the program that ran in the trace, if it is known: a call
        of which the profiler tells too little can only be one of them.
        """
