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
    that remains part of a latency.
    """

    def __init__(self, names: Collection[str], call_s: float) -> None:
        self._names, self._call_s = frozenset(names), call_s
        self._runs = 0
        self._seconds = 0.0  # of the runs that count
        self._first_us: dict[str, float] = {}
        self._next = 2 * _FIRST
        self._excess_s, self._inside_s = 0.0, 0.0

    def corrected(self, request: ov.InferRequest, latency_s: float) -> float:
        """The latency of the run that ``request`` has just made, without what is outside."""
        self._runs += 1
        if self._runs > _FIRST:
            self._seconds += latency_s
        if self._runs == _FIRST:
            self._first_us = self._averages_us(request)
        elif self._runs == self._next:
            self._next *= 2
            self._compute(request)
        # A run that finds its code in the caches has nothing to take out.
        return max(latency_s - self._excess_s, min(latency_s, self._inside_s + self._call_s))

    def _compute(self, request: ov.InferRequest) -> None:
        """Find what runs take in kernels, on the average, and outside of them beyond a call."""
        counted = self._runs - _FIRST
        inside_us = 0.0
        for name, average_us in self._averages_us(request).items():
            total_us = average_us * self._runs - self._first_us[name] * _FIRST
            if total_us > 0:
                inside_us += total_us / counted + _CUT_OFF_US
        if inside_us:  # else it is too short to be counted
            self._inside_s = inside_us * 1e-6
            mean_s = self._seconds / counted
            self._excess_s = max(0.0, mean_s - self._inside_s - self._call_s)

    def _averages_us(self, request: ov.InferRequest) -> dict[str, float]:
        with translated("reading its counters"):
            return {
                info.node_name: info.real_time.total_seconds() * 1e6
                for info in request.profiling_info
                if info.node_name in self._names
            }
