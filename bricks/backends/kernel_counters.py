"""What each part of a compiled model takes in a run, told by the runtime's counters of kernels.

The runtime counts what each kernel takes, in whole microseconds, and tells the averages since the
model was compiled. So counters tell how a run divides into its kernels, and the time of each run
tells how long they took in it. What a run takes beside its kernels (the call, its inputs and
outputs) is no part's. Must not know what runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

# All spans of runs count as equally fast whose mean is at most so many times the lowest.
_SAME = 1.03
# A counter of zero is cut off once, in each run; others once more on the average.
_CUT_OFF_S = 0.5e-6


@dataclass(frozen=True, slots=True)
class CallOverhead:
    """What runs around kernels, in seconds.

    ``call_s`` is the cost of a call that finds all it needs in the caches, ``kernel_s`` what a
    kernel takes beyond its counter.
    """

    call_s: float
    kernel_s: float


class _Look(NamedTuple):
    """The seconds of all ``runs`` so far, and of each kernel in them."""

    runs: int
    run_s: float
    kernels_s: np.ndarray


class KernelCounters:
    """The counters of one compiled model, which ``read`` returns: seconds by kernel.

    They are averages over all runs, and those of kernels of one name are added up.
    ``parts`` are the names of each part's kernels, ``others`` those of kernels that belong to none.
    Averages do not tell which runs were disturbed. So counters are looked at now and then, and the
    longest span between two looks counts that is as fast as any.
    """

    def __init__(
        self,
        parts: Sequence[Iterable[str]],
        others: Iterable[str],
        around: CallOverhead,
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
        self._beyond_s = np.array([around.kernel_s * number_of[name] for name in owners])
        self._parts, self._call_s, self._read = len(parts), around.call_s, read
        self._runs, self._run_s = 0, 0.0
        self._looks = [_Look(0, 0.0, np.zeros(len(owners)))]
        self._shares_s = [0.0] * len(parts)
        self._kernels_s = self._outside_s = 0.0

    def latencies_s(self, run_s: float) -> list[float]:
        """The latency of each part in the run that has just ended, which took ``run_s``.

        Each includes a call, as if it had run alone.
        """
        self._runs += 1
        self._run_s += run_s
        if _is_time_to_look(self._runs):
            self._looks.append(_Look(self._runs, self._run_s, self._seconds_of_kernels()))
            self._divide(*self._span())
        inside_s = max(0.0, run_s - self._outside_s)
        slower = inside_s / self._kernels_s if self._kernels_s else 1.0
        return [share * slower + self._call_s for share in self._shares_s]

    def _span(self) -> tuple[_Look, _Look]:
        """The span that counts. The first run finds no memory of its own: it does if it must."""
        first = 1 if self._runs > 1 else 0
        spans = [*combinations(self._looks[first:], 2)]
        means_s = [(end.run_s - begin.run_s) / (end.runs - begin.runs) for begin, end in spans]
        fast = [
            span
            for span, mean_s in zip(spans, means_s, strict=True)
            if mean_s <= _SAME * min(means_s)
        ]
        return max(fast, key=lambda span: span[1].runs - span[0].runs)

    def _divide(self, begin: _Look, end: _Look) -> None:
        """Divide the mean run between two looks into its parts, and what is outside of kernels."""
        runs = end.runs - begin.runs
        counted_s = np.maximum(0.0, (end.kernels_s - begin.kernels_s) / runs)
        beyond_s = np.where(end.kernels_s > 0, 0.0, -_CUT_OFF_S) + self._beyond_s
        of_owners_s = np.bincount(
            self._owners, counted_s + np.maximum(0.0, beyond_s), minlength=self._parts + 1
        )
        self._shares_s = of_owners_s[: self._parts].tolist()
        self._kernels_s = float(of_owners_s.sum())
        self._outside_s = max(0.0, (end.run_s - begin.run_s) / runs - self._kernels_s)

    def _seconds_of_kernels(self) -> np.ndarray:
        found = np.zeros(len(self._numbers))
        for name, seconds in self._read().items():
            if name in self._numbers:
                found[self._numbers[name]] = seconds
        return found * self._runs


def _is_time_to_look(runs: int) -> bool:
    """Whether ``runs`` is a power of two, or three times one: often at first, then more seldom."""
    base = runs // 3 if runs % 3 == 0 else runs
    return base & (base - 1) == 0
