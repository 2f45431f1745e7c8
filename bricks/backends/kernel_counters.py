"""The latency of each part of a compiled model in a run, from the runtime's counters of kernels.

The runtime counts the time of each kernel in whole microseconds, and returns averages since the
model was compiled. Counters divide a run among its kernels, and the latency of a run scales them.
The call overhead of a run (the call, its inputs and outputs) belongs to no part. Must not know the
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

# Spans of runs count as equally fast if their mean is at most so many times the lowest.
_SAME = 1.03
# The mean error of truncating a counter to whole microseconds.
_CUT_OFF_S = 0.5e-6


@dataclass(frozen=True, slots=True)
class CallOverhead:
    """The overhead of runs in seconds.

    ``call_s`` is that of a call with warm caches, ``kernel_s`` that of a kernel beyond its counter.
    """

    call_s: float
    kernel_s: float


class _Reading(NamedTuple):
    """The number of runs so far, their total seconds, and the total seconds of each kernel."""

    runs: int
    run_s: float
    kernels_s: np.ndarray


class KernelCounters:
    """The counters of one compiled model; ``read`` returns mean seconds over all runs by kernel.

    Counters of kernels of one name are sums. ``parts`` are the names of each part's kernels,
    ``others`` kernels of no part. Averages include noisy runs, so counters are read at growing
    intervals, and the longest span between two readings counts that is as fast as any.
    """

    def __init__(
        self,
        parts: Sequence[Iterable[str]],
        others: Iterable[str],
        overhead: CallOverhead,
        read: Callable[[], Mapping[str, float]],
    ) -> None:
        owners: dict[str, int] = {}
        number_of = Counter[str]()
        for owner, names in enumerate([*parts, others]):
            for name in names:
                owners.setdefault(name, owner)
                number_of[name] += 1
        self._numbers = {name: number for number, name in enumerate(owners)}
        self._owners = np.array([*owners.values()], int)
        self._beyond_s = np.array([overhead.kernel_s * number_of[name] for name in owners])
        self._parts, self._call_s, self._read = len(parts), overhead.call_s, read
        self._runs, self._run_s = 0, 0.0
        self._readings = [_Reading(0, 0.0, np.zeros(len(owners)))]
        self._shares_s = [0.0] * len(parts)
        self._kernels_s = self._outside_s = 0.0

    def latencies_s(self, run_s: float) -> list[float]:
        """Return the latency of each part in the last run, which took ``run_s``.

        Each includes a call, as if the part had run isolated.
        """
        self._runs += 1
        self._run_s += run_s
        if _is_reading_due(self._runs):
            means_s = np.zeros(len(self._numbers))
            for name, seconds in self._read().items():
                if name in self._numbers:
                    means_s[self._numbers[name]] = seconds
            self._readings.append(_Reading(self._runs, self._run_s, means_s * self._runs))
            self._divide()
        inside_s = max(0.0, run_s - self._outside_s)
        slower = inside_s / self._kernels_s if self._kernels_s else 1.0
        return [share * slower + self._call_s for share in self._shares_s]

    def _divide(self) -> None:
        """Divide the mean run of the span that counts into its parts and the call overhead."""
        first = 1 if self._runs > 1 else 0  # the first run allocates memory
        spans = [*combinations(self._readings[first:], 2)]
        means_s = [(end.run_s - begin.run_s) / (end.runs - begin.runs) for begin, end in spans]
        fast = [
            span
            for span, mean_s in zip(spans, means_s, strict=True)
            if mean_s <= _SAME * min(means_s)
        ]
        begin, end = max(fast, key=lambda span: span[1].runs - span[0].runs)
        runs = end.runs - begin.runs
        counted_s = np.maximum(0.0, (end.kernels_s - begin.kernels_s) / runs)
        beyond_s = np.where(end.kernels_s > 0, 0.0, -_CUT_OFF_S) + self._beyond_s
        of_owners_s = np.bincount(
            self._owners, counted_s + np.maximum(0.0, beyond_s), minlength=self._parts + 1
        )
        self._shares_s = of_owners_s[: self._parts].tolist()
        self._kernels_s = float(of_owners_s.sum())
        self._outside_s = max(0.0, (end.run_s - begin.run_s) / runs - self._kernels_s)


def _is_reading_due(runs: int) -> bool:
    """Whether ``runs`` is a power of two, or three times one."""
    base = runs // 3 if runs % 3 == 0 else runs
    return base & (base - 1) == 0
