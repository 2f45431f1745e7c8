"""The memory layout of a model's activations, so that bricks are measured at the same addresses.

A runtime lets activations share memory once their last reader is done. A brick that reads and
writes the addresses that it has inside its model, after the bricks before it, finds its inputs in
the same caches (of the same cores) as in the model.

Only floating-point tensors are placed. Integers must keep values that the graph accepts, and so
must scalars (the share that Dropout drops), but all bricks overwrite the shared region. It must not
know which bricks are timed.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass

from bricks.decompose.plan import Plan
from bricks.graph.tensor import TensorType

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


class _Buffer:
    """Memory that values take one after the other; ``type_`` is that of the first."""

    def __init__(self, type_: TensorType) -> None:
        self.type_ = type_
        self.users = 0  # values that hold it now
        self.last = 0  # the occurrence after which none does


def arrange(plan: Plan) -> Arena:
    """Lay out the activations of ``plan`` as a runtime would while executing it in order.

    The rules are those of ONNX Runtime's planner. An output reuses the memory of an input where its
    operator allows that; or else the last free buffer that was made for a value of the same type;
    or else new memory. Buffers live from their first value to their last, and are allocated best
    fit.
    """
    buffers = _buffers(plan)
    memory = _Memory()
    offsets: dict[_Buffer, int] = {}
    for value in (*plan.inputs, *plan.outputs):  # the caller's memory, all the time
        if (buffer := buffers.get(value)) is not None and buffer not in offsets:
            buffer.last = len(plan.occurrences)
            offsets[buffer] = memory.take(_bytes(buffer))
    for number, occurrence in enumerate(plan.occurrences):
        for value in occurrence.made:
            if (buffer := buffers.get(value)) is not None and buffer not in offsets:
                offsets[buffer] = memory.take(_bytes(buffer))
        for buffer in {buffers[v] for v in (*occurrence.inputs, *occurrence.made) if v in buffers}:
            if buffer.last == number:
                memory.give(offsets[buffer], _bytes(buffer))
    placed = [offsets[buffers[v]] if v in buffers else None for v in range(len(plan.types))]
    return Arena(tuple(placed), memory.end)


def _bytes(buffer: _Buffer) -> int:
    return -(-max(buffer.type_.size_bytes, 1) // ALIGNMENT) * ALIGNMENT


def _buffers(plan: Plan) -> dict[int, _Buffer]:
    """The buffer of each floating-point value, by the value's number."""
    left = Counter(v for o in plan.occurrences for v in o.inputs)
    fixed = {*plan.inputs, *plan.outputs}
    found: dict[int, _Buffer] = {}
    free: list[_Buffer] = []  # in the order in which they became free

    def place(value: int, beside: int | None) -> None:
        type_ = plan.types[value]
        if value in found or not isinstance(type_, TensorType):
            return
        if not type_.floating or not type_.shape:
            return
        buffer = None if beside is None else found.get(beside)
        if buffer is None and value not in fixed:
            buffer = next((b for b in reversed(free) if b.type_ == type_), None)
            if buffer is not None:
                free.remove(buffer)
        if buffer is None:
            buffer = _Buffer(type_)
        found[value] = buffer
        buffer.users += 1

    for value in fixed:
        place(value, None)
    for number, occurrence in enumerate(plan.occurrences):
        for position, value in enumerate(occurrence.made):
            in_place = occurrence.in_place if position == 0 else None
            place(value, None if in_place is None else occurrence.inputs[in_place])
        for value in occurrence.inputs:
            left[value] -= 1
        for value in dict.fromkeys((*occurrence.inputs, *occurrence.made)):
            buffer = found.get(value)
            if buffer is None or value in fixed or left[value] > 0:
                continue
            buffer.users -= 1
            if not buffer.users:
                buffer.last = number
                free.append(buffer)
    return found
