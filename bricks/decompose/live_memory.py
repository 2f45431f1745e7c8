"""What is live at the peak of a run, by role, from the lifetimes of its pieces of memory.

Kernels' own workspaces are not in it. Must not know where lifetimes come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from bricks.decompose.memory import LiveRange


def live_at_peak(spans: Iterable[LiveRange], occurrences: int) -> tuple[int, dict[str, int]]:
    """The first position at which most bytes are live, and these bytes by role."""
    pieces = list(spans)
    at = _peak_position(pieces, occurrences)
    held = dict[str, int]()
    for span in pieces:
        if span.begin <= at <= span.end:
            held[span.role] = held.get(span.role, 0) + span.size_bytes
    return at, held


def _peak_position(spans: Iterable[LiveRange], occurrences: int) -> int:
    changes = [0] * (occurrences + 1)
    for span in spans:
        changes[span.begin] += span.size_bytes
        changes[span.end + 1] -= span.size_bytes
    live = list(accumulate(changes[:-1]))
    return live.index(max(live)) if live else 0
