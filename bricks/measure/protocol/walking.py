"""Requests to run what is loaded: passes over steps, and the reference workload."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.measure.allocation_events import AllocationEvent
from bricks.measure.protocol.request import Request
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class WalkConditions:
    """Conditions during the passes of a walk, as in :class:`~bricks.samples.measurement.Round`."""

    reference_s: float | None = None
    waited_share: float | None = None
    reference_end_s: float | None = None


UNKNOWN_CONDITIONS = WalkConditions()


@dataclass(frozen=True, slots=True)
class Walked:
    """Samples of each step, one for each pass; of a step that is not timed, none.

    ``eviction_short`` is whether there was memory for a part of the eviction read alone. Steps with
    the numbers ``apart`` could not run in one call with their neighbours. ``idle_s`` is the time
    before each pass that was asked for over a socket, in which there was nothing to run.
    """

    samples: tuple[tuple[Sample, ...], ...]
    conditions: WalkConditions = UNKNOWN_CONDITIONS
    eviction_short: bool = False
    apart: tuple[int, ...] = ()
    idle_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RunWalk(Request[Walked]):
    """Run steps in order: passes to warm up, then ``passes`` that count.

    Or those that are asked for over the Unix socket ``served_at``, until whoever asks leaves.

    ``steps`` are names, each with whether it is timed. With ``announce``, each step is announced
    before it runs, and no conditions are taken. Before each pass, ``eviction_bytes`` are read.
    Steps use the first ``region_bytes`` of the region; None: all of it. ``memory`` is what a
    recorded program allocates and frees before each step, and at the end.
    """

    steps: tuple[tuple[str, bool], ...]
    passes: int
    announce: bool
    eviction_bytes: int = 0
    region_bytes: int | None = None
    memory: tuple[tuple[AllocationEvent, ...], ...] = ()
    served_at: str | None = None


@dataclass(frozen=True, slots=True)
class TimeReference(Request[float]):
    """Time the reference workload: seconds."""
