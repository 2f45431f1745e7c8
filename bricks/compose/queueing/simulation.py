"""Simulates a server by discrete events: arrivals, a queue, and instances that run requests.

A policy decides what an instance runs next: batches, or sequences that join and leave between steps
(both in :mod:`~bricks.compose.queueing.batching`). The queue is first in, first out, so the
simulation goes from run to run instead of from event to event; ``tests/studies/serving`` compares
it with SimPy.

Metrics, such as percentiles, are intervals: a server is simulated with latencies at their values
and with draws of latencies, with the same arrivals and the same noise. Must not know models or
results.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from bricks.compose.queueing.idle import NO_IDLE_PENALTY, IdleModel
from bricks.system.limits import Quota, ThrottledClock
from bricks.units.draws import Drawn, interval_of

if TYPE_CHECKING:
    from bricks.units.interval import Interval

# Seconds that the network adds to each of a number of answers: shape (answers,).
TransportSeconds = Callable[[int], np.ndarray]


@dataclass(slots=True)
class Log:
    """The events of all instances, run by run.

    ``first`` are numbers of requests in the order of their first output, ``first_s`` the times of
    these outputs; ``done`` and ``done_s`` likewise of their last output. ``batches`` are the sizes
    of runs that requests share, ``occupied_s`` the seconds of all runs.
    """

    first: list[int] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    done_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    occupied_s: list[float] = field(default_factory=list)


class InstancePolicy(Protocol):
    """Decides what one instance runs."""

    @property
    def unfinished(self) -> bool:
        """Whether the instance has begun requests that are not done."""

    def begin(self, queue: Queue, free_s: float) -> float:
        """Take requests from the queue at ``free_s``; return the time of the next run."""

    def seconds(self, number: int, idle_depth: float, busy: int) -> float:
        """Seconds of this run, the server's ``number``-th, at an idle depth of the processor.

        ``busy`` instances run when it begins, this one included.
        """

    def end(self, end_s: float, log: Log) -> None:
        """Log the run, which ends at ``end_s``, and its outputs."""


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A simulated run of a server.

    Of the served requests in order of arrival, all of shape ``(requests,)``: ``arrived_s`` are the
    arrival times, ``first_s`` and ``done_s`` the times of the first and last output, and
    ``transport_s`` the seconds that the network adds. ``dropped`` is the number of other requests.
    ``batches`` are the sizes of the runs that requests share, ``occupied_s`` the seconds for which
    each run occupies its instance. ``span_s`` are the seconds from the first arrival to the end of
    the last run, ``samples`` is the number of samples served.
    """

    arrived_s: np.ndarray
    first_s: np.ndarray
    done_s: np.ndarray
    transport_s: np.ndarray
    dropped: int
    batches: np.ndarray
    occupied_s: np.ndarray
    span_s: float
    samples: int

    @property
    def latencies_s(self) -> np.ndarray:
        """Seconds from the arrival of each request to its last output."""
        return np.asarray(self.done_s - self.arrived_s + self.transport_s)

    @property
    def first_latencies_s(self) -> np.ndarray:
        """Seconds from the arrival of each request to its first output."""
        return np.asarray(self.first_s - self.arrived_s + self.transport_s)

    @property
    def busy_s(self) -> float:
        """Busy seconds, summed over all instances."""
        return float(self.occupied_s.sum())

    @property
    def mean_batch(self) -> float:
        """The mean size of the runs that requests share; 1 without any."""
        return float(self.batches.mean()) if len(self.batches) else 1.0


def simulate(
    arrivals_s: Sequence[float],
    instances: Sequence[InstancePolicy],
    *,
    max_queue: int | None = None,
    idle_model: IdleModel = NO_IDLE_PENALTY,
    transport_s: TransportSeconds = np.zeros,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate ``instances`` that serve requests with the ascending arrival times ``arrivals_s``.

    Requests that arrive while ``max_queue`` others wait are dropped. ``idle_model`` gives the idle
    depth of processors. The network adds ``transport_s`` to each answer, without occupying an
    instance. A ``quota`` stops the only instance.
    """
    log = Log()
    clock = None if quota is None else ThrottledClock(quota)
    last_s = _serve(Queue(arrivals_s, max_queue), instances, idle_model, log, clock)
    arrived_s = np.asarray(arrivals_s, dtype=float)
    first_s, done_s = np.full((2, len(arrived_s)), np.nan)
    first_s[log.first], done_s[log.done] = log.first_s, log.done_s
    kept = ~np.isnan(done_s)
    served = int(kept.sum())
    return ServerRun(
        arrived_s[kept],
        first_s[kept],
        done_s[kept],
        transport_s(served),
        len(arrived_s) - served,
        np.asarray(log.batches, dtype=int),
        np.asarray(log.occupied_s),
        last_s - arrivals_s[0] if len(arrivals_s) else 0.0,
        served,
    )


def simulate_in_turn(
    queries: int,
    samples: int,
    instances: Sequence[InstancePolicy],
    *,
    transport_s: TransportSeconds = np.zeros,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate ``queries`` of ``samples`` each; the next arrives when one is done."""
    log = Log()
    added_s = transport_s(queries)
    clock = None if quota is None else ThrottledClock(quota)
    done_s, begin_s = np.zeros(queries), 0.0
    for query in range(queries):
        at_once = [begin_s] * samples
        end_s = _serve(Queue(at_once), instances, NO_IDLE_PENALTY, log, clock)
        done_s[query] = end_s - begin_s
        if clock is not None:  # else all queries are served in the same way, at any time
            begin_s = end_s + float(added_s[query])
    return ServerRun(
        np.zeros(queries),
        done_s,
        done_s,
        added_s,
        0,
        np.asarray(log.batches, dtype=int),
        np.asarray(log.occupied_s),
        float((done_s + added_s).sum()),
        queries * samples,
    )


def _serve(
    queue: Queue,
    instances: Sequence[InstancePolicy],
    idle_model: IdleModel,
    log: Log,
    clock: ThrottledClock | None = None,
) -> float:
    """Serve all requests of ``queue``; return the end of the last run."""
    last_s = begun_s = queue.first_s() if queue else 0.0
    # Of each instance: when it is free, the idle depth of its processor then, and its number.
    free = [(begun_s, 0.0, number) for number in range(len(instances))]
    while free:
        free_s, depth, number = free[0]
        policy = instances[number]
        if not queue and not policy.unfinished:
            heapq.heappop(free)
            last_s = max(last_s, free_s)
            continue
        begin_s = policy.begin(queue, free_s)
        depth = idle_model.after_idling(depth, begin_s - free_s)
        busy = 1 + sum(free_s > begin_s for free_s, _, _ in free)
        run_s = policy.seconds(len(log.occupied_s), depth, busy)
        if clock is not None:
            run_s = clock.end_s(begin_s, run_s) - begin_s
        policy.end(begin_s + run_s, log)
        log.occupied_s.append(run_s)
        heapq.heapreplace(free, (begin_s + run_s, idle_model.after_work(depth, run_s), number))
    return last_s


def poisson_s(qps: float, count: int, seed: int) -> list[float]:
    """``count`` arrival times of a Poisson process of ``qps`` requests a second, in seconds."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: list[float] = (np.cumsum(gaps) / qps).tolist()
    return arrivals


class Queue:
    """Numbers of requests in the order of their arrival; ``arrivals_s`` are the arrival times.

    A request that arrives while ``bound`` others wait is dropped. The queue is false once no
    request waits or is still to arrive.
    """

    __slots__ = ("_at", "_bound", "_waiting", "arrivals_s")

    def __init__(self, arrivals_s: Sequence[float], bound: int | None = None) -> None:
        self.arrivals_s = arrivals_s
        self._bound = len(arrivals_s) if bound is None else bound
        self._waiting: deque[int] = deque()
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._waiting) or self._at < len(self.arrivals_s)

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def first_s(self) -> float:
        """The arrival time of the first waiting request; without any, of the next request."""
        if not self._waiting:
            self._waiting.append(self._at)
            self._at += 1
        return self.arrivals_s[self._waiting[0]]

    def enqueue_until(self, now_s: float) -> None:
        """Enqueue the requests that arrive until ``now_s``."""
        arrivals_s, at = self.arrivals_s, self._at
        while at < len(arrivals_s) and arrivals_s[at] <= now_s:
            if len(self._waiting) < self._bound:
                self._waiting.append(at)
            at += 1
        self._at = at

    def fill(self, most: int, until_s: float) -> float:
        """Enqueue requests until ``most`` wait, or until ``until_s``; return the time."""
        arrivals_s = self.arrivals_s
        enqueued_s = until_s
        while len(self._waiting) < most:
            if self._at == len(arrivals_s) or arrivals_s[self._at] > until_s:
                return until_s
            enqueued_s = arrivals_s[self._at]
            self._waiting.append(self._at)
            self._at += 1
        return enqueued_s

    def take(self, most: int) -> list[int]:
        """Remove the first ``most`` waiting requests, or all if there are fewer."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]


# The share of requests that warm up the simulation: the server begins without a queue.
WARM_UP = 0.05

T = TypeVar("T")


def without_warm_up(values: np.ndarray) -> np.ndarray:
    """``values``, in the order of arrival, without those of the warm-up."""
    return values[int(WARM_UP * len(values)) :]


def metric(runs: Drawn[T], of: Callable[[T], float], *, unbounded: bool = False) -> Interval:
    """The metric ``of`` all runs as an interval, whose high end is infinite if ``unbounded``."""
    interval = interval_of(runs.map(of))
    return replace(interval, high=math.inf) if unbounded else interval


def percentiles(
    values: Drawn[np.ndarray], percents: Mapping[str, float], *, unbounded: bool
) -> dict[str, Interval]:
    """Percentiles of the values of each run, by the names in ``percents``."""
    return {
        name: metric(values, partial(_percentile, percent=percent), unbounded=unbounded)
        for name, percent in percents.items()
    }


def _percentile(values: np.ndarray, percent: float) -> float:
    return float(np.percentile(values, percent))


def rate(count: float, seconds: float) -> float:
    """``count`` in ``seconds``, per second; infinite where an interval's low end is no time."""
    return count / seconds if seconds > 0 else math.inf


def trimmed_mean(values: np.ndarray | Sequence[float], share: float = 0.1) -> float:
    """The mean without a ``share`` of the values at each end; NaN without values."""
    if not len(values):
        return math.nan
    cut = int(share * len(values))
    kept = np.partition(values, (cut, len(values) - cut - 1))[cut : len(values) - cut]
    return float(kept.mean())
