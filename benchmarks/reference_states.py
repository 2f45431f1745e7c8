"""States of a machine in results of earlier versions, which one reference workload distinguished.

Latencies of the workload within a factor of 1.25 were of one state; results are kept in its
microseconds. Must not know what the results are of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

_SAME_STATE_FACTOR = 1.25


def same_state(one: float | None, other: float | None) -> bool:
    """Whether two reference latencies are of one state; None is of any."""
    if one is None or other is None:
        return True
    return max(one, other) <= _SAME_STATE_FACTOR * min(one, other)


def states(references: Iterable[float | None]) -> list[float | None]:
    """All states, the one with the most rows first; ``[None]`` if no row has a reference."""
    left = sorted(of for of in references if of is not None)
    ordered: list[float | None] = []
    while left:
        middle = _most_frequent(left)
        ordered.append(middle)
        left = [of for of in left if not same_state(of, middle)]
    return ordered or [None]


def _most_frequent(known: list[float]) -> float:
    first, last = 0, 0
    for i, low in enumerate(known):
        end = bisect_right(known, low * _SAME_STATE_FACTOR)
        if end - i > last - first:
            first, last = i, end
    return known[(first + last) // 2]
