"""Simulates a server by discrete events: arrivals, a queue, and instances that run what it takes.

What an instance does next is its policy: batches (:mod:`~bricks.compose.queueing.batching`) or
texts that join and leave between steps (:mod:`~bricks.compose.queueing.continuous`). The queue is
served in the order of arrival, so the simulation goes from run to run instead of from event to
event; ``tests/studies/serving`` holds it against SimPy. Must not know models or results.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bricks.compose.queueing.arrivals import Queue
from bricks.compose.queueing.idle import AWAKE, Waking

# How long each of so many answers is on the way: shape (answers,).
Way = Callable[[int], np.ndarray]


@dataclass(slots=True)
class Log:
    """What instances did, run by run.

    ``first`` and ``done`` are numbers of requests, and when they got their first output and their
    last one. ``batches`` are the sizes of runs that requests share, ``occupied_s`` the seconds of
    all runs.
    """

    first: list[int] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    done_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    occupied_s: list[float] = field(default_factory=list)


class InstancePolicy(Protocol):
    """What one instance does."""

    @property
    def holds(self) -> bool:
        """Whether it works on requests that are not done."""

    def begin(self, queue: Queue, free_s: float) -> float:
        """Take requests, now that the instance is free; when it runs next."""

    def seconds(self, number: int, sleep: float) -> float:
        """How long that run takes: the server's ``number``-th, on a processor that sleeps so."""

    def end(self, end_s: float, log: Log) -> None:
        """Note what the run was, and which outputs it gave."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a server did.

    ``arrived_s``, ``first_s`` and ``done_s`` are of the requests that were served, in order of
    their arrival: when they came, and when their first and last output was ready, which then were
    on the way for ``way_s``. ``dropped`` is the number of other requests. ``batches`` are the sizes
    of the runs that requests share, and ``occupied_s`` the seconds that each run keeps its
    instance. ``span_s`` is the time from the first arrival until all is served, and ``samples`` the
    number of samples served.
    """

    arrived_s: np.ndarray
    first_s: np.ndarray
    done_s: np.ndarray
    way_s: np.ndarray
    dropped: int
    batches: np.ndarray
    occupied_s: np.ndarray
    span_s: float
    samples: int

    @property
    def latencies_s(self) -> np.ndarray:
        """From its arrival until a request is done."""
        return np.asarray(self.done_s - self.arrived_s + self.way_s)

    @property
    def first_after_s(self) -> np.ndarray:
        """From its arrival until the first output of a request."""
        return np.asarray(self.first_s - self.arrived_s + self.way_s)

    @property
    def busy_s(self) -> float:
        """The time of all instances together."""
        return float(self.occupied_s.sum())

    @property
    def mean_batch(self) -> float:
        """The mean size of the runs that requests share; 1 where there is none."""
        return float(self.batches.mean()) if len(self.batches) else 1.0


def simulate(
    arrivals_s: Sequence[float],
    instances: Sequence[InstancePolicy],
    *,
    max_queue: int | None = None,
    waking: Waking = AWAKE,
    way_s: Way = np.zeros,
) -> Served:
    """Requests that arrive at ``arrivals_s``, in order, served by ``instances``.

    Those that arrive while ``max_queue`` others wait are dropped. Processors sleep as ``waking``
    says. An answer reaches whoever asked after ``way_s``, which keep no instance busy.
    """
    log = Log()
    last_s = _serve(Queue(arrivals_s, max_queue), instances, waking, log)
    arrived_s = np.asarray(arrivals_s, dtype=float)
    first_s, done_s = np.full((2, len(arrived_s)), np.nan)
    first_s[log.first], done_s[log.done] = log.first_s, log.done_s
    kept = ~np.isnan(done_s)
    served = int(kept.sum())
    return Served(
        arrived_s[kept],
        first_s[kept],
        done_s[kept],
        way_s(served),
        len(arrived_s) - served,
        np.asarray(log.batches, dtype=int),
        np.asarray(log.occupied_s),
        last_s - arrivals_s[0] if len(arrivals_s) else 0.0,
        served,
    )


def simulate_in_turn(
    queries: int, samples: int, instances: Sequence[InstancePolicy], *, way_s: Way = np.zeros
) -> Served:
    """``queries`` of ``samples`` each; the next arrives when all of one are served."""
    log = Log()
    at_once = [0.0] * samples
    done_s = np.asarray([_serve(Queue(at_once), instances, AWAKE, log) for _ in range(queries)])
    on_the_way_s = way_s(queries)
    return Served(
        np.zeros(queries),
        done_s,
        done_s,
        on_the_way_s,
        0,
        np.asarray(log.batches, dtype=int),
        np.asarray(log.occupied_s),
        float((done_s + on_the_way_s).sum()),
        queries * samples,
    )


def _serve(queue: Queue, instances: Sequence[InstancePolicy], waking: Waking, log: Log) -> float:
    """Serve all of ``queue``; when the last run ends."""
    last_s = begun_s = queue.first_s() if queue else 0.0
    # Of each instance when it is free, how far its processor then sleeps, and its number.
    free = [(begun_s, 0.0, number) for number in range(len(instances))]
    while free:
        free_s, sleep, number = free[0]
        policy = instances[number]
        if not queue and not policy.holds:
            heapq.heappop(free)
            last_s = max(last_s, free_s)
            continue
        begin_s = policy.begin(queue, free_s)
        sleep = waking.after_idling(sleep, begin_s - free_s)
        taken_s = policy.seconds(len(log.occupied_s), sleep)
        policy.end(begin_s + taken_s, log)
        log.occupied_s.append(taken_s)
        heapq.heapreplace(free, (begin_s + taken_s, waking.after_work(sleep, taken_s), number))
    return last_s
