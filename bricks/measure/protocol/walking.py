"""Requests to run loaded pieces: passes over steps, and the reference kernels."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.measure.allocation_events import AllocationEvent
from bricks.measure.protocol.request import Request
from bricks.system.accelerator_state import AcceleratorState
from bricks.system.host_conditions import HostConditions
from bricks.units.sample import Sample


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
