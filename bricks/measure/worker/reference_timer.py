"""Times the reference workload, in the worker: see ``backends/instruments``.

It must not know which bricks are measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from bricks.backends.base import BoundModel

# Runs of the reference workload: before the first, threads of the pool may be idle.
_WARM_UPS, _RUNS = 2, 5

# Seconds for which a timing is valid: the end of a walk is the beginning of the next.
_VALID_S = 0.01


class ReferenceTimer:
    """The reference workload, loaded when it is first timed, and its last latency."""

    def __init__(self, load: Callable[[], BoundModel]) -> None:
        self._load = load
        self._reference: BoundModel | None = None
        self._last_s = 0.0
        self._at_s = -math.inf

    def now_s(self) -> float:
        """Its latency now in seconds: the shortest of several runs, with all threads active."""
        if self._reference is None:
            self._reference = self._load()
        for _ in range(_WARM_UPS):
            self._reference.sample()
        self._last_s = min(self._reference.sample().host_s for _ in range(_RUNS))
        self._at_s = time.perf_counter()
        return self._last_s

    def recent_s(self) -> float:
        """The last latency in seconds if it was timed within 10 ms, and else the latency now."""
        recent = time.perf_counter() - self._at_s < _VALID_S
        return self._last_s if recent else self.now_s()
