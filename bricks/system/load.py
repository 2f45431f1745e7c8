"""What else keeps the host busy while something is timed.

Latencies taken beside other work are too high, and nothing in the samples says so. Two views of
it: how much others take of the whole host meanwhile, and how long the threads of this process were
kept from running. It must not know what is timed, nor decide what is too much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

TASKS = Path("/proc/self/task")


class ForeignLoad:
    """Counts the processor time that others take from now on.

    ``live_s`` tells the processor seconds of own processes that still run besides this one.
    """

    def __init__(self, live_s: Callable[[], float] = lambda: 0.0) -> None:
        self._live_s = live_s
        self._wall_s = time.monotonic()
        self._all_s, self._own_s = busy_s(), self._own()

    def cores(self) -> float:
        """How many cores others kept busy on average; stolen time of a virtual machine counts."""
        wall_s = max(time.monotonic() - self._wall_s, 1e-3)
        foreign_s = (busy_s() - self._all_s) - (self._own() - self._own_s)
        return max(0.0, foreign_s / wall_s)

    def _own(self) -> float:
        return sum(os.times()[:4]) + self._live_s()  # with children that have ended


def busy_s() -> float:
    """Seconds for which the processors of this host were busy since it started, all added up."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


class Waiting:
    """Counts how long threads of this process wait for a processor from now on."""

    def __init__(self) -> None:
        self._wall_s = time.monotonic()
        self._kept_s = _kept_s()

    def share(self) -> float | None:
        """Seconds waited by all threads, and stolen by a hypervisor, per second that passed.

        None where the system doesn't tell (anything but Linux).
        """
        kept_s = _kept_s()
        if kept_s is None or self._kept_s is None:
            return None
        wall_s = max(time.monotonic() - self._wall_s, 1e-6)
        return max(0.0, kept_s - self._kept_s) / wall_s


def _kept_s() -> float | None:
    """Seconds for which threads could have run and did not; None if the system doesn't tell."""
    waited_ns, known = 0, False
    try:
        for task in TASKS.iterdir():
            fields = (task / "schedstat").read_text(encoding="ascii").split()
            waited_ns += int(fields[1])  # time on a run queue; proc(5)
            known = True
    except (OSError, IndexError, ValueError):
        known = False
    stolen_s: float = getattr(psutil.cpu_times(), "steal", 0.0)
    return waited_ns * 1e-9 + stolen_s if known else None
