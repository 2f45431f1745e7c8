"""The memory layout of a model's activations, so that bricks are measured at the same addresses.

A runtime lets activations share memory once their last reader is done. A brick that reads and
writes the addresses that it has inside its model, after the bricks before it, finds its inputs in
the same caches (of the same cores) as in the model.

Only tensors of floats, of bytes (quantised numbers) and of 32-bit integers (sums of products of
these) have offsets. Other integers must keep values that the graph accepts, and so must scalars
(the share that Dropout drops), but all bricks overwrite the shared region. It must not know which
bricks are timed.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from bricks.decompose.buffers import Buffer, buffers
from bricks.decompose.memory import Flow, MemoryLayout
from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType

ALIGNMENT = 64

# Integers that are mostly quantised numbers, and those that are mostly sums of their products.
BYTES = frozenset(("UINT8", "INT8"))
SUMS = "INT32"


class _BestFitAllocator:
    """Best-fit allocation over one growing range of addresses."""

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []  # (offset, size), by offset

    def allocate(self, size: int) -> int:
        fitting = [(free_size, offset) for offset, free_size in self._free if free_size >= size]
        if fitting:
            free_size, offset = min(fitting)
            self._free.remove((offset, free_size))
            if free_size > size:
                insort(self._free, (offset + size, free_size - size))
            return offset
        if self._free and sum(self._free[-1]) == self.end:  # extend the last gap
            offset, _ = self._free.pop()
        else:
            offset = self.end
        self.end = offset + size
        return offset

    def free(self, offset: int, size: int) -> None:
        insort(self._free, (offset, size))
        merged: list[tuple[int, int]] = []
        for start, length in self._free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged


def arrange(flow: Flow) -> MemoryLayout:
    """Lay out the activations of ``flow`` as a runtime would while executing it in order.

    Buffers live from their first value to their last, and are allocated best fit.
    """
    shared = buffers(flow, _has_offset)
    allocator = _BestFitAllocator()
    offsets: dict[Buffer, int] = {}
    for value in (*flow.inputs, *flow.outputs):  # the caller's memory, all the time
        if (buffer := shared.get(value)) is not None and buffer not in offsets:
            offsets[buffer] = allocator.allocate(_bytes(buffer))
    for number, occurrence in enumerate(flow.occurrences):
        for value in occurrence.made:
            if (buffer := shared.get(value)) is not None and buffer not in offsets:
                offsets[buffer] = allocator.allocate(_bytes(buffer))
        for buffer in {shared[v] for v in (*occurrence.inputs, *occurrence.made) if v in shared}:
            if buffer.last == number:
                allocator.free(offsets[buffer], _bytes(buffer))
    by_value = [offsets[shared[v]] if v in shared else None for v in range(len(flow.types))]
    return MemoryLayout(tuple(by_value), allocator.end)


def _has_offset(type_: ValueType) -> bool:
    if not isinstance(type_, TensorType) or not type_.shape:
        return False
    return type_.floating or type_.dtype in BYTES or type_.dtype == SUMS


def _bytes(buffer: Buffer) -> int:
    return -(-max(buffer.type_.size_bytes, 1) // ALIGNMENT) * ALIGNMENT
