"""Requests of measuring: make the backend, load pieces, bind them to memory, run walks over them.

Pieces are bricks, whole models and probes.

Calls of a recorded program allocate their results. Their addresses, and the page faults of touching
new pages, depend on all allocations and frees before. So a walk allocates in place of the
occurrences that it leaves out, and frees when the program does. Must not know how steps are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.measure.protocol.request import Request
from bricks.system.accelerator import CPU, AcceleratorState
from bricks.system.host_conditions import HostConditions
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.decompose.memory import Allocation


@dataclass(frozen=True, slots=True)
class MakeRegion(Request[None]):
    """Make the region of ``size_bytes`` that all steps of a walk share.

    Walks read at most ``eviction_bytes`` to evict the caches. Steps use only the parts ``used``,
    each with its offset and bytes; None: the whole region.
    """

    size_bytes: int
    eviction_bytes: int = 0
    used: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class LoadPiece(Request[None]):
    """Load a model under a name; see :class:`bricks.measure.walk.Load` for the other fields."""

    name: str
    key: str
    model: bytes
    optimize: bool
    streams: tuple[int, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class LoadPieces(Request[tuple[float, ...]]):
    """Load several pieces at once; the answer has the seconds of loading each.

    Each piece is announced when it is loaded.
    """

    pieces: tuple[LoadPiece, ...]


@dataclass(frozen=True, slots=True)
class BindPiece(Request[None]):
    """Bind the inputs and outputs of a loaded ``piece``, so that it is a ``step`` that can run.

    Inputs and outputs are offsets in bytes into the region, or None for memory of their own. A
    ``repeated`` step runs once untimed right before each sample.
    """

    step: str
    piece: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class UnloadAll(Request[None]):
    """Unload all pieces, and return their memory to the system."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Settings with which a worker makes its backend.

    ``memory_bytes`` limits the data of the process; None: no limit. ``workers`` is how many nodes
    of a model run at the same time. ``timing`` is whether latencies are measured. ``device`` runs
    the models: ``cpu`` or ``cuda``. With ``repeat_inputs``, all runs have the same inputs.
    """

    backend: str
    threads: int
    seed: int
    memory_bytes: int | None = None
    workers: int = 1
    timing: bool = True
    optimization: str = "all"
    device: str = CPU
    repeat_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Hello(Request[int]):
    """The first request: make the backend. The answer is the process's number.

    ``location`` is where the runtime's offer is (:func:`bricks.backends.location`); empty where
    packages are installed.
    """

    settings: BackendSettings
    location: str = ""


@dataclass(frozen=True, slots=True)
class LimitMemory(Request[int | None]):
    """Limit the data of the process to ``memory_bytes``; None: no limit.

    The answer is the bytes of data that it has now; None where the system does not report them.
    """

    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class WalkConditions:
    """Conditions during the passes of a walk, as in :class:`~bricks.samples.measurement.Round`."""

    host: HostConditions | None = None
    waited_share: float | None = None
    device_state: AcceleratorState | None = None


UNKNOWN_CONDITIONS = WalkConditions()


@dataclass(frozen=True, slots=True)
class Walked:
    """Samples of each step, one for each pass; a step that is not timed has none.

    ``eviction_short`` is whether memory sufficed for only a part of the eviction read. Steps with
    the numbers ``separate`` could not run in one call with their neighbours. ``idle_s`` has the
    seconds without a request before each pass that was requested over a socket.
    """

    samples: tuple[tuple[Sample, ...], ...]
    conditions: WalkConditions = UNKNOWN_CONDITIONS
    eviction_short: bool = False
    separate: tuple[int, ...] = ()
    idle_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RunWalk(Request[Walked]):
    """Run steps in order: passes to warm up, then ``passes`` timed ones.

    With ``served_at``, passes run whenever a client of this Unix socket requests one, until it
    leaves.

    ``steps`` are names, each with whether it is timed. With ``announce``, each step is announced
    before it runs, and no conditions are recorded. Before each pass, ``eviction_bytes`` are read.
    Steps use the parts ``used`` of the region, each with its offset and bytes; None: the whole
    region. ``memory`` has the allocations and frees of a recorded program before each step, and
    after the last. A device touches ``displaced_bytes`` of other memory before each step; None:
    none but the walk's. ``kernels`` is whether those that steps start there are timed.
    """

    steps: tuple[tuple[str, bool], ...]
    passes: int
    announce: bool
    eviction_bytes: int = 0
    used: tuple[tuple[int, int], ...] | None = None
    memory: tuple[tuple[AllocationEvent, ...], ...] = ()
    served_at: str | None = None
    displaced_bytes: int | None = None
    kernels: bool = True


@dataclass(frozen=True, slots=True)
class RunRepeatedly(Request[int]):
    """Run a bound ``step`` again and again while a file exists; answers the number of runs.

    ``while_exists`` is the path of the file. The number of runs so far is announced after the first
    run, and about once a second.
    """

    step: str
    while_exists: str


@dataclass(frozen=True, slots=True)
class TimeKernels(Request[tuple[HostConditions, ...]]):
    """Time the reference kernels again and again for so many ``seconds``, once at least."""

    seconds: float = 0.0


# The handle that stands for all handles.
EVERY_HANDLE = -1

# A tensor handle and the bytes to allocate for it; 0: free its tensor.
AllocationEvent = tuple[int, int]


def allocation_events(
    positions: Sequence[int], allocations: Sequence[Allocation], length: int
) -> list[list[AllocationEvent]]:
    """Allocations and frees before allocation step of a pass, and after the last step.

    ``positions`` are the steps' positions in a plan of ``length`` occurrences. After the last step,
    all tensors are freed.
    """
    run = set(positions)
    made: dict[int, list[AllocationEvent]] = {}
    freed: dict[int, list[AllocationEvent]] = {}
    for allocation in allocations:
        if allocation.size_bytes and allocation.made not in run:
            made.setdefault(allocation.made, []).append((allocation.slot, allocation.size_bytes))
        if allocation.freed is not None:
            freed.setdefault(allocation.freed, []).append((allocation.slot, 0))
    events, at = [], 0
    for position in (*positions, length):
        between: list[AllocationEvent] = []
        for passed in range(at, position):
            between += made.get(passed, ())
            between += freed.get(passed, ())
        events.append(between)
        at = position
    events[-1].append((EVERY_HANDLE, 0))
    return events
