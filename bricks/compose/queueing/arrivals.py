"""Arrival times of requests, and the queue that they wait in. Must not know the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np


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
