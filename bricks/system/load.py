"""What else keeps the host busy while something is timed.

Latencies taken beside other work are too high, and nothing in the samples says so. It must not
know what is timed, nor decide what is too much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil


class ForeignLoad:
    """Counts the processor time that others take from now on.

    ``live_s`` tells the processor seconds of own processes that still run besides this one.
    """

    def __init__(self, live_s: Callable[[], float] = lambda: 0.0) -> None:
        self._live_s = live_s
        self._wall_s = time.monotonic()
        self._all_s, self._own_s = _busy_s(), self._own()

    def cores(self) -> float:
        """How many cores others kept busy on average; stolen time of a virtual machine counts."""
        wall_s = max(time.monotonic() - self._wall_s, 1e-3)
        foreign_s = (_busy_s() - self._all_s) - (self._own() - self._own_s)
        return max(0.0, foreign_s / wall_s)

    def _own(self) -> float:
        return sum(os.times()[:4]) + self._live_s()  # with children that have ended


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
