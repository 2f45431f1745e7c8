"""The peak of live memory in a run, by role, without workspaces of kernels.

Must not know how live ranges are derived.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.decompose.memory import LiveRange


def live_at_peak(spans: Iterable[LiveRange], occurrences: int) -> tuple[int, dict[str, int]]:
    """Return the first position with the most live bytes, and the live bytes there by role."""
    pieces = list(spans)
    at = _peak_position(pieces, occurrences)
    live_bytes = dict[str, int]()
    for span in pieces:
        if span.begin <= at <= span.end:
            live_bytes[span.role] = live_bytes.get(span.role, 0) + span.size_bytes
    return at, live_bytes


def _peak_position(spans: Iterable[LiveRange], occurrences: int) -> int:
    changes = [0] * (occurrences + 1)
    for span in spans:
        changes[span.begin] += span.size_bytes
        changes[span.end + 1] -= span.size_bytes
    live = list(accumulate(changes[:-1]))
    return live.index(max(live)) if live else 0
