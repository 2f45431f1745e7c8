"""Allocations and frees of a recorded program between the steps of a walk.

Calls allocate their results. Their addresses, and the page faults of touching new pages, depend on
all allocations and frees before. So a walk allocates in place of the occurrences that it leaves
out, and frees when the program does. Must not know how steps are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.decompose.memory import Allocation

# The handle that stands for all handles.
EVERY_HANDLE = -1

# A tensor handle and the bytes to allocate for it; 0: free its tensor.
AllocationEvent = tuple[int, int]


def allocation_events(
    positions: Sequence[int], allocations: Sequence[Allocation], length: int
) -> list[list[AllocationEvent]]:
    """Allocations and frees before allocation step of a pass, and after the last step.

    ``positions`` are the steps' positions in a plan of ``length`` occurrences. After the last step,
    all tensors are freed.
    """
    run = set(positions)
    made: dict[int, list[AllocationEvent]] = {}
    freed: dict[int, list[AllocationEvent]] = {}
    for allocation in allocations:
        if allocation.size_bytes and allocation.made not in run:
            made.setdefault(allocation.made, []).append((allocation.slot, allocation.size_bytes))
        if allocation.freed is not None:
            freed.setdefault(allocation.freed, []).append((allocation.slot, 0))
    events, at = [], 0
    for position in (*positions, length):
        between: list[AllocationEvent] = []
        for passed in range(at, position):
            between += made.get(passed, ())
            between += freed.get(passed, ())
        events.append(between)
        at = position
    events[-1].append((EVERY_HANDLE, 0))
    return events
