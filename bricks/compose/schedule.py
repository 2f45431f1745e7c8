"""Parallel construction: the latency of a model whose occurrences are run by several workers.

DLBricks (Li et al., ICPE 2020, section 3.2) names parallel construction next to the sequential one,
and does not say which layers may run in parallel. Here workers run streams of occurrences (see
:mod:`bricks.decompose.plan`) as the runtime does: each stream in the model's order, an
occurrence as soon as all its inputs are ready. Rules say which occurrences must not overlap. Must
not know where latencies come from.

A rule is any callable that takes two :class:`Place` and returns True or False: whether the first
may begin while the second runs::

    def no_two_large(first: Place, second: Place) -> bool:
        return first.brick.weight_bytes + second.brick.weight_bytes < 2**21

See research/construction.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bricks.compose.composer import compose
from bricks.compose.lanes import occurrence_tasks
from bricks.errors import UsageError, first_line

if TYPE_CHECKING:
    from bricks.compose.lanes import Timeline
    from bricks.decompose.occurrence import Occurrence
    from bricks.decompose.plan import Brick, Plan

# How long a thread without a processor waits for one: a tick of the system's clock (4 ms at the
# usual 250 a second), because spinning threads give up theirs at ticks only. Handovers of 3 to 5 ms
# were seen on two processors; the value gives the order of magnitude.
TICK_S = 4e-3


@dataclass(frozen=True, slots=True)
class Place:
    """An occurrence in a plan, with its position and its brick: the arguments of rules."""

    position: int
    occurrence: Occurrence
    brick: Brick


class Rule(Protocol):
    """Decides which occurrences may overlap."""

    def __call__(self, first: Place, second: Place, /) -> bool:
        """Whether ``first`` may begin while ``second`` runs.

        The inputs of both are ready. The rule is not called for occurrences that depend on each
        other.
        """
        ...


def anything(first: Place, second: Place) -> bool:
    """The rule that all independent occurrences may overlap."""
    return True


def not_two_of(*operators: str) -> Rule:
    """The rule that no two bricks with any of these operators overlap.

    For operators that saturate a shared resource: all threads, or the memory.
    """
    named = frozenset(operators)

    def rule(first: Place, second: Place) -> bool:
        return not (
            named.intersection(first.brick.operators) and named.intersection(second.brick.operators)
        )

    return rule


@dataclass(frozen=True, slots=True)
class Construction:
    """How occurrences run in parallel.

    ``workers`` run ``streams``: a number for each occurrence. ``bricks`` are the plan's. Each brick
    was measured with ``threads``, which overlapping occurrences share. ``processors`` is the number
    available to all threads; None means enough.
    """

    workers: int
    streams: tuple[int, ...]
    bricks: Mapping[str, Brick]
    rule: Rule = anything
    threads: int = 1
    processors: float | None = None

    @property
    def processor_share(self) -> float:
        """The share of a processor that each thread gets.

        Besides workers and their helper threads, the calling thread spins until the run is done,
        and workers spin while they wait: all of them are always running.
        """
        needed = self.workers + self.threads
        return 1.0 if self.processors is None else min(1.0, self.processors / needed)

    @property
    def handover_s(self) -> float:
        """Seconds until another worker takes over an output: a tick if it has no processor.

        Otherwise it takes a few microseconds, which are not counted.
        """
        return TICK_S if self.processor_share < 1 else 0.0

    def speed(self, running: int) -> float:
        """The speed of each of ``running`` occurrences, relative to its measurement.

        All occurrences share the pool of helper threads. This assumes that an occurrence's latency
        scales with its threads: if it does not, sharing them costs less.
        """
        if not running:
            return self.processor_share
        helped = (running + self.threads - 1) / (running * self.threads)
        return self.processor_share * helped


def schedule(plan: Plan, construction: Construction, latency_s: Mapping[str, float]) -> Timeline:
    """The timeline of ``plan`` on the workers of ``construction``.

    ``latency_s`` are isolated latencies by brick. Of several ready occurrences that a rule does not
    let overlap, the first in the model's order runs. Raises :class:`UsageError` for a rule that
    fails or answers no boolean.
    """
    workers = [worker(stream) for stream in construction.streams]
    of = occurrence_tasks(plan, latency_s, workers, construction.handover_s)
    places = [
        Place(i, occurrence, construction.bricks[occurrence.brick])
        for i, occurrence in enumerate(plan.occurrences)
    ]

    def overlap(position: int, running: Collection[int]) -> bool:
        first = places[position]
        return all(_allowed(construction.rule, first, places[other]) for other in running)

    return compose(of.tasks, overlap=overlap, speed=construction.speed)


def worker(stream: int) -> str:
    """The lane of the worker that runs a stream."""
    return f"worker {stream + 1}"


def longest_s(plan: Plan, construction: Construction, total_s: float) -> float:
    """Seconds if nothing overlaps and every possible handover occurs; ``total_s`` is the sum."""
    streams = construction.streams
    handed = sum(
        any(streams[producer] != streams[i] for producer in producers)
        for i, producers in enumerate(plan.producers())
    )
    return total_s / construction.processor_share + handed * construction.handover_s


def _allowed(rule: Rule, first: Place, second: Place) -> bool:
    called = getattr(rule, "__name__", type(rule).__name__)
    pair = f"occurrences {first.position} and {second.position}"
    try:
        answer: object = rule(first, second)
    except Exception as exc:  # the rule is the user's own code
        raise UsageError(
            f"overlap rule {called} failed at {pair} ({type(exc).__name__}: {first_line(exc)}):"
            " correct it"
        ) from exc
    if not isinstance(answer, bool):
        raise UsageError(
            f"overlap rule {called} answered {answer!r} for {pair}: let it return True or False"
        )
    return answer
