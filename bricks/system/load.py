"""Load of other processes on the host during a measurement.

Other work on the host inflates latencies, and the samples do not reveal it. This module measures
the processor time that other processes use on the whole host, and the time for which threads of
this process waited for a processor. Must not know what is timed, nor which load is too high.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bricks.system.limits import throttled_s

TASKS = Path("/proc/self/task")
STATISTICS = Path("/proc/stat")


class ForeignLoad:
    """Counts the processor time that other processes use from now on.

    ``live_s`` returns the processor seconds of this program's other running processes.
    """

    def __init__(self, live_s: Callable[[], float] = lambda: 0.0) -> None:
        self._live_s = live_s
        self._wall_s = time.monotonic()
        self._all_s, self._own_s = busy_s(), self._own()

    def cores(self) -> float:
        """The average number of cores that others kept busy; includes stolen time."""
        wall_s = max(time.monotonic() - self._wall_s, 1e-3)
        foreign_s = (busy_s() - self._all_s) - (self._own() - self._own_s)
        return max(0.0, foreign_s / wall_s)

    def _own(self) -> float:
        return sum(os.times()[:4]) + self._live_s()  # with children that have ended


def busy_s() -> float:
    """Busy seconds since the host started, summed over its processors."""
    import psutil  # not where nothing can be installed

    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


class ProcessorWait:
    """Counts how long threads of this process wait for a processor from now on."""

    def __init__(self) -> None:
        self._wall_s = time.monotonic()
        self._waited_s = _waited_s()

    def share(self) -> float | None:
        """Seconds waited by all threads, and stolen by a hypervisor, per elapsed second.

        None where the system doesn't report it (anything but Linux).
        """
        waited_s = _waited_s()
        if waited_s is None or self._waited_s is None:
            return None
        wall_s = max(time.monotonic() - self._wall_s, 1e-6)
        return max(0.0, waited_s - self._waited_s) / wall_s


def _waited_s() -> float | None:
    """Seconds for which runnable threads did not run; None if the system doesn't report it.

    Stops by a quota do not count: nobody else ran.
    """
    waited_ns, known = 0, False
    try:
        for task in TASKS.iterdir():
            fields = (task / "schedstat").read_text(encoding="ascii").split()
            waited_ns += int(fields[1])  # time on a run queue; proc(5)
            known = True
    except (OSError, IndexError, ValueError):
        known = False
    return waited_ns * 1e-9 + _stolen_s() - throttled_s() if known else None


def _stolen_s() -> float:
    """Seconds that a hypervisor took from the processors; 0 if the system doesn't report it."""
    try:
        ticks = STATISTICS.read_text(encoding="ascii").split("\n", 1)[0].split()
        return int(ticks[8]) / os.sysconf("SC_CLK_TCK")  # proc(5)
    except (OSError, IndexError, ValueError):
        return 0.0
