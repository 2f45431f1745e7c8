"""What a recorded program allocates and frees between the steps of a walk.

Calls allocate their results. Which memory they get, and whether it is fresh (so that the kernel has
to fill it page by page), depends on all that was allocated and freed before. So a walk allocates in
place of the occurrences that it leaves out, and frees when the program does. Must not know how
steps are run.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.decompose.memory import Allocation

# The slot that stands for all of them.
EVERY_HANDLE = -1

# A slot and the bytes to allocate in it; 0: empty it.
AllocationEvent = tuple[int, int]


def allocation_events(
    positions: Sequence[int], allocations: Sequence[Allocation], length: int
) -> list[list[AllocationEvent]]:
    """What to allocate and free before each step of a pass, and after the last one.

    ``positions`` are those of the steps in a plan of ``length`` occurrences. After the last step,
    everything is freed.
    """
    run = set(positions)
    made: dict[int, list[AllocationEvent]] = {}
    freed: dict[int, list[AllocationEvent]] = {}
    for each in allocations:
        if each.size_bytes and each.made not in run:
            made.setdefault(each.made, []).append((each.slot, each.size_bytes))
        if each.freed is not None:
            freed.setdefault(each.freed, []).append((each.slot, 0))
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
