"""Times the reference kernels in the worker, and adds up what they show over some seconds.

They take some milliseconds and are timed again only after ten times as long, so that they take a
tenth of the time of measuring at most. Must not know which bricks are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from bricks.backends.base import BoundModel
from bricks.system.host_conditions import HostConditions, mean_conditions

# Runs of each kernel: the first finds threads and caches as other work has left them, and an
# interruption lengthens one of the others only.
_WARM_UPS, _RUNS = 1, 2

# No clock distinguishes shorter latencies.
_BRIEF_S = 1e-9

# A timing is valid for this multiple of the time that it took.
_VALID = 10.0


class ReferenceKernels:
    """The kernels by name, which ``load`` returns when they are first timed."""

    def __init__(self, load: Callable[[], Mapping[str, BoundModel]]) -> None:
        self._load = load
        self._kernels: Mapping[str, BoundModel] | None = None
        self._last: HostConditions | None = None
        self._until_s = 0.0

    def now(self) -> HostConditions:
        """The conditions now."""
        if self._kernels is None:
            self._kernels = self._load()
        started_s = time.perf_counter()
        latency_s = {name: _latency_s(kernel) for name, kernel in self._kernels.items()}
        ended_s = time.perf_counter()
        self._until_s = ended_s + _VALID * (ended_s - started_s)
        self._last = HostConditions.of(latency_s, int(time.time()))
        return self._last

    def recent(self) -> HostConditions:
        """The last conditions as long as they are valid, and else the conditions now."""
        if self._last is None or time.perf_counter() > self._until_s:
            return self.now()
        return self._last

    def over(self, seconds: float, between: Callable[[], object]) -> list[HostConditions]:
        """Conditions again and again for so many ``seconds``; other work runs in ``between``."""
        until_s, every = time.perf_counter() + seconds, [self.now()]
        while time.perf_counter() < until_s:
            between()
            every.append(self.now())
        return every


def around(before: HostConditions | None, after: HostConditions | None) -> HostConditions | None:
    """The conditions of work between the two."""
    return before if before is after else mean_conditions([before, after])


def _latency_s(kernel: BoundModel) -> float:
    for _ in range(_WARM_UPS):
        kernel.sample()
    return max(_BRIEF_S, min(kernel.sample().host_s for _ in range(_RUNS)))
