"""Where a model's activations would lie in memory, so that bricks are measured at those places.

A runtime lets activations share memory once their last reader is done. A brick that reads and
writes the very addresses that it has inside its model, after the bricks before it have left their
traces there, finds its inputs as warm (and as far away, on several cores) as the model would.

Only floating-point values are placed: integers must keep values that the graph can take, and the
shared region is overwritten by everybody.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass

from bricks.decompose.plan import Plan

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Arena:
    """Offsets in bytes by value number (None: the value has a buffer of its own), and the size."""

    offsets: tuple[int | None, ...]
    size_bytes: int


class _Memory:
    """Best-fit allocation over one growing range of addresses."""

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> int:
        fitting = [(free_size, offset) for offset, free_size in self._free if free_size >= size]
        if fitting:
            free_size, offset = min(fitting)
            self._free.remove((offset, free_size))
            if free_size > size:
                insort(self._free, (offset + size, free_size - size))
            return offset
        if self._free and sum(self._free[-1]) == self.end:  # grow the last gap
            offset, _ = self._free.pop()
        else:
            offset = self.end
        self.end = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        insort(self._free, (offset, size))
        merged: list[tuple[int, int]] = []
        for start, length in self._free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged


def arrange(plan: Plan) -> Arena:
    """Lay out the activations of ``plan`` as a runtime would while executing it in order."""
    memory = _Memory()
    offsets: list[int | None] = [None] * len(plan.types)
    left = Counter(v for o in plan.occurrences for v in o.inputs)
    for value in (*plan.inputs, *plan.outputs):
        left[value] += 1  # the caller's memory: never reused
    users: Counter[int] = Counter()  # values that hold a block, by the block's offset
    sizes: dict[int, int] = {}

    def place(value: int, beside: int | None) -> None:
        type_ = plan.types[value]
        if offsets[value] is not None or not type_.floating:
            return
        shared = None if beside is None else offsets[beside]
        if shared is None:
            size = -(-max(type_.size_bytes, 1) // ALIGNMENT) * ALIGNMENT
            shared = memory.take(size)
            sizes[shared] = size
        offsets[value] = shared
        users[shared] += 1

    def release(value: int) -> None:
        offset = offsets[value]
        if offset is None or left[value] > 0:
            return
        users[offset] -= 1
        if not users[offset]:
            memory.give(offset, sizes.pop(offset))

    for value in plan.inputs:
        place(value, None)
    for occurrence in plan.occurrences:
        for position, value in enumerate(occurrence.outputs):
            first_in_place = position == 0 and occurrence.in_place is not None
            source = occurrence.inputs[occurrence.in_place or 0] if first_in_place else None
            place(value, source)
        for value in occurrence.inputs:
            left[value] -= 1
        for value in {*occurrence.inputs, *occurrence.outputs}:
            release(value)
    return Arena(tuple(offsets), memory.end)
