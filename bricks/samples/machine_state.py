"""States of a machine, identified by the latency of the reference workload.

The speed of a machine changes: a hypervisor moves virtual processors between cores that share a
cache and cores that don't, and the clock drops when the machine gets hot. Latencies of one state
say little about another, so compared latencies must come from one state. The latency of the
reference workload, in seconds, identifies a state; None means unknown, and matches every state.
Must not know the workload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

# Rounds whose references are within this factor belong to one state. Ordinary drift stays well
# below it; cores with and without a shared cache differ by a factor of two.
SAME_STATE_FACTOR = 1.25


def same_state(one_s: float | None, other_s: float | None) -> bool:
    """Whether two reference latencies belong to one state."""
    if one_s is None or other_s is None:
        return True
    return max(one_s, other_s) <= SAME_STATE_FACTOR * min(one_s, other_s)


def dominant_state(references_s: Iterable[float | None]) -> float | None:
    """The state in which most of the rounds were taken; None if no round has a reference."""
    known = sorted(s for s in references_s if s is not None)
    first, last = 0, 0
    for i, low_s in enumerate(known):
        end = bisect_right(known, low_s * SAME_STATE_FACTOR)
        if end - i > last - first:
            first, last = i, end
    return known[(first + last) // 2] if known else None


def states(references_s: Iterable[float | None]) -> list[float | None]:
    """All states, the one with the most rounds first; ``[None]`` if no round has a reference."""
    left = [s for s in references_s if s is not None]
    ordered: list[float | None] = []
    while left:
        state_s = dominant_state(left)
        ordered.append(state_s)
        left = [s for s in left if not same_state(s, state_s)]
    return ordered or [None]
