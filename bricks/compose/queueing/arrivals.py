"""When requests arrive, and the queue in which they wait. Must not know who serves them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np


def poisson_s(qps: float, count: int, seed: int) -> list[float]:
    """``count`` arrivals of a Poisson process, in seconds."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: list[float] = (np.cumsum(gaps) / qps).tolist()
    return arrivals


class Queue:
    """Requests by their number, in the order in which they arrive at ``arrivals_s``.

    It is false once all were taken. Of those that arrive while ``bound`` others wait, each is
    dropped.
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
        """How many wait."""
        return len(self._waiting)

    def first_s(self) -> float:
        """When the first that waits has arrived; without any, when the next one will."""
        if not self._waiting:
            self._waiting.append(self._at)
            self._at += 1
        return self.arrivals_s[self._waiting[0]]

    def join_until(self, now_s: float) -> None:
        """Let those wait that arrive until then."""
        arrivals_s, at = self.arrivals_s, self._at
        while at < len(arrivals_s) and arrivals_s[at] <= now_s:
            if len(self._waiting) < self._bound:
                self._waiting.append(at)
            at += 1
        self._at = at

    def fill(self, most: int, until_s: float) -> float:
        """Let further ones wait until they are ``most``; when that is, but no later than given."""
        arrivals_s = self.arrivals_s
        joined_s = until_s
        while len(self._waiting) < most:
            if self._at == len(arrivals_s) or arrivals_s[self._at] > until_s:
                return until_s
            joined_s = arrivals_s[self._at]
            self._waiting.append(self._at)
            self._at += 1
        return joined_s

    def take(self, most: int) -> list[int]:
        """The first ones that wait, ``most`` of them at most."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
