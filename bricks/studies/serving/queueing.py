"""Simulates a server by discrete events: queries, a queue, batches, and instances that run them.

The queue is served in the order of arrival, so the simulation goes from batch to batch instead of
from event to event; ``tests/scenarios`` holds it against SimPy. Must not know models or results.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bricks.studies.serving.idle import AWAKE, Waking
from bricks.studies.serving.scenario import Serving

# Seconds that a batch of so many samples takes; the second argument is the number of the batch, the
# third how far the processor sleeps, from 0 to 1.
BatchSeconds = Callable[[int, int, float], float]


@dataclass(frozen=True, slots=True)
class Served:
    """What a server did.

    ``latencies_s`` are those of the samples that were served, in order of their arrival (of
    queries, in the multi-stream scenario); ``dropped`` is the number of others. ``batches`` are the
    sizes of the batches, and ``occupied_s`` the seconds that each keeps its instance. ``span_s`` is
    the time from the first arrival until all is served, and ``samples`` the number of samples
    served.
    """

    latencies_s: np.ndarray
    dropped: int
    batches: np.ndarray
    occupied_s: np.ndarray
    span_s: float
    samples: int

    @property
    def busy_s(self) -> float:
        """The time of all instances together."""
        return float(self.occupied_s.sum())


def serve(
    arrivals_s: Sequence[float],
    serving: Serving,
    batch_s: BatchSeconds,
    waking: Waking = AWAKE,
) -> Served:
    """Serve samples that arrive at ``arrivals_s``, in order.

    Processors sleep as ``waking`` says. An instance waits for a batch to be filled, not for more
    than ``serving.timeout_s`` after the first of its samples arrived. Whoever arrives just when a
    batch begins is part of it.
    """
    count, most, timeout_s = len(arrivals_s), serving.max_batch, serving.timeout_s
    bound = serving.max_queue or count
    # Of each instance when it is free, how far its processor then sleeps, and its number.
    free = [(arrivals_s[0] if count else 0.0, 0.0, n) for n in range(serving.instances)]
    waiting: deque[int] = deque()
    served: list[int] = []
    ends: list[float] = []
    sizes: list[int] = []
    occupied: list[float] = []
    at = 0
    while waiting or at < count:
        if not waiting:
            waiting.append(at)
            at += 1
        first_s = arrivals_s[waiting[0]]
        free_s, sleep, instance = free[0]
        begin_s = max(free_s, first_s)
        while at < count and arrivals_s[at] <= begin_s:
            if len(waiting) < bound:
                waiting.append(at)
            at += 1
        if len(waiting) < most and begin_s < first_s + timeout_s:
            until_s = first_s + timeout_s
            while len(waiting) < most and at < count and arrivals_s[at] <= until_s:
                begin_s = arrivals_s[at]
                waiting.append(at)
                at += 1
            if len(waiting) < most:
                begin_s = until_s
        size = min(most, len(waiting))
        sleep = waking.after_idling(sleep, begin_s - free_s)
        taken_s = batch_s(size, len(sizes), sleep)
        end_s = begin_s + taken_s
        heapq.heapreplace(free, (end_s, waking.after_work(sleep, taken_s), instance))
        for _ in range(size):
            served.append(waiting.popleft())
            ends.append(end_s)
        sizes.append(size)
        occupied.append(taken_s)
    waited_s = np.asarray(ends) - np.asarray(arrivals_s)[served]
    latencies_s = waited_s + serving.on_the_way_s(len(ends))
    last_s = max(end for end, _, _ in free) if count else 0.0
    return Served(
        latencies_s,
        count - len(served),
        np.asarray(sizes, dtype=int),
        np.asarray(occupied),
        last_s - (arrivals_s[0] if count else 0.0),
        len(served),
    )


def serve_in_turn(queries: int, samples: int, serving: Serving, batch_s: BatchSeconds) -> Served:
    """Serve ``queries`` of ``samples`` each; the next arrives when all of one are served.

    All samples of a query are there at once, so instances wait for none.
    """
    latencies, sizes, occupied = [], list[int](), list[float]()
    for _ in range(queries):
        free = [0.0] * serving.instances
        left = samples
        while left:
            size = min(serving.max_batch, left)
            taken_s = batch_s(size, len(sizes), 0.0)
            heapq.heapreplace(free, free[0] + taken_s)
            sizes.append(size)
            occupied.append(taken_s)
            left -= size
        latencies.append(max(free))
    found = np.asarray(latencies) + serving.on_the_way_s(queries)
    return Served(
        found,
        0,
        np.asarray(sizes, dtype=int),
        np.asarray(occupied),
        float(found.sum()),
        queries * samples,
    )
