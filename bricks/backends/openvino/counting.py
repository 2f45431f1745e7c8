"""What a brick's run takes outside of its kernels, told by OpenVINO's own counters.

A run of a brick alone does more than its kernels: inside a model, one call runs all kernels, and a
value that a kernel overwrites is where the kernel before has put it. Alone, each brick is a call,
whose code and data other bricks have displaced from the caches, and an input that is overwritten is
copied first. OpenVINO counts what each kernel takes; the rest of a run, beyond the cost of a call
that finds everything in the caches, is taken out of a brick's latency. So are kernels that are
there only to give a brick its inputs.

Counters are whole microseconds, and averages since the model was compiled. Must not know what runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import openvino as ov

from bricks.backends.openvino.compiling import translated

# The first runs, which find no memory of their own yet, do not count.
_FIRST = 2
# A counter is cut off to whole microseconds twice: in each run, and on the average.
_CUT_OFF_US = 1.0


class Counters:
    """The counters of one compiled brick, over the runs of all its requests.

    ``names`` are those of the kernels that are the brick's, and ``call_s`` is the cost of a call
    that remains part of a latency. Runs are looked at in windows, each as long as all before it.
    The window with the lowest latency counts: averages do not tell which runs were disturbed.
    """

    def __init__(self, names: Collection[str], call_s: float) -> None:
        self._names, self._call_s = frozenset(names), call_s
        self._runs, self._begin, self._end = 0, 0, _FIRST
        self._seconds = 0.0  # of the runs in this window
        self._totals_us: dict[str, float] = {}  # of the runs before it
        self._least_s = math.inf  # per run, in the window that counts
        self._inside_s = self._excess_s = 0.0

    def corrected(self, request: ov.InferRequest, latency_s: float) -> float:
        """The latency of the run that ``request`` has just made, without what is outside."""
        self._runs += 1
        self._seconds += latency_s
        if self._runs == self._end:
            self._close_window(request)
        # A run that finds its code in the caches has nothing to take out.
        return max(latency_s - self._excess_s, min(latency_s, self._inside_s + self._call_s))

    def _close_window(self, request: ov.InferRequest) -> None:
        runs, before = self._runs - self._begin, self._totals_us
        mean_s = self._seconds / runs
        self._totals_us = self._read_totals_us(request)
        if before and mean_s < self._least_s:
            taken = [
                (total - before[name]) / runs + _CUT_OFF_US
                for name, total in self._totals_us.items()
                if total > before[name]
            ]
            if taken:  # else it is too short to be counted
                self._least_s, self._inside_s = mean_s, sum(taken) * 1e-6
                self._excess_s = max(0.0, mean_s - self._inside_s - self._call_s)
        self._begin, self._end, self._seconds = self._runs, 2 * self._runs, 0.0

    def _read_totals_us(self, request: ov.InferRequest) -> dict[str, float]:
        with translated("reading its counters"):
            return {
                info.node_name: info.real_time.total_seconds() * 1e6 * self._runs
                for info in request.profiling_info
                if info.node_name in self._names
            }
