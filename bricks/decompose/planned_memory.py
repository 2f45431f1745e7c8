"""Memory that a runtime plans ahead: values lie at offsets in one region.

The plan of a runtime's executed graph says which values share a buffer, so nothing else is stored.

Buffers are shared as ONNX Runtime's planner decides before any run. An output reuses the memory of
an input where its operator allows it, else the buffer that became free last among buffers of the
same shape and element size, else new memory.

Bricks are measured at the addresses of this layout.

A runtime lets activations share memory once their last reader is done. A brick that reads and
writes the addresses that it has inside its model, after the bricks before it, finds its inputs in
the same caches (of the same cores) as in the model.

Only tensors of floats, of bytes (quantised numbers) and of 32-bit integers (sums of products of
these) have offsets. Other integers must keep values that the graph accepts, and so must scalars
(the share that Dropout drops), but all bricks overwrite the shared region. Must not know how a walk
uses the region, nor which bricks are timed.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.decompose.memory import ACTIVATION, Flow, LiveRange, Memory, MemoryLayout
from bricks.graph.types import ELEMENT_BITS, TensorType

if TYPE_CHECKING:
    from bricks.graph.types import ValueType


@dataclass(frozen=True, slots=True)
class Planned(Memory):
    """Memory that is planned before a run, which is a single call of the runtime."""

    def layout(self, flow: Flow) -> MemoryLayout:
        """Offsets in bytes, as the runtime would lay values out."""
        return arrange(flow)

    def spans(self, flow: Flow) -> Iterator[LiveRange]:
        """Each buffer, from its first value to the last reader of its last value."""
        last = len(flow.occurrences) - 1
        begins: dict[Buffer, int] = {}
        shared = buffers(flow)
        for value in (*flow.inputs, *flow.outputs):
            begins.setdefault(shared[value], 0)
        for position, occurrence in enumerate(flow.occurrences):
            for value in occurrence.made:
                begins.setdefault(shared[value], position)
        for buffer, begin in begins.items():
            end = last if buffer.last < 0 else buffer.last
            yield LiveRange(_size_bytes(buffer), begin, end, ACTIVATION)


def _size_bytes(buffer: Buffer) -> int:
    type_ = buffer.type_
    sized = isinstance(type_, TensorType) and type_.dtype != "STRING"
    return type_.size_bytes if sized else 0


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


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory that values occupy one after the other; ``type_`` is the type of the first value.

    ``last`` is the position of the last occurrence that reads the buffer; -1 in buffers of inputs
    and outputs of the model.
    """

    type_: ValueType
    users: int = 0  # values that occupy it now
    last: int = -1

    def fits(self, type_: ValueType) -> bool:
        """Whether a value of ``type_`` may reuse the buffer."""
        own = self.type_
        return (
            isinstance(own, TensorType)
            and isinstance(type_, TensorType)
            and own.shape == type_.shape
            and own.dtype in ELEMENT_BITS
            and ELEMENT_BITS[own.dtype] == ELEMENT_BITS.get(type_.dtype)
        )


def buffers(
    flow: Flow, included: Callable[[ValueType], bool] = lambda _: True
) -> dict[int, Buffer]:
    """Return the buffer of each value of a type that is ``included``, by the value's number.

    Inputs and outputs of the model share their buffers with no other value; scalars get new ones.
    """
    readers_left = Counter(v for o in flow.occurrences for v in o.inputs)
    fixed = {*flow.inputs, *flow.outputs}
    by_value: dict[int, Buffer] = {}
    free: list[Buffer] = []  # in the order in which they became free

    def assign(value: int, reused: int | None) -> None:
        type_ = flow.types[value]
        if value in by_value or not included(type_):
            return
        buffer = None if reused is None else by_value.get(reused)
        if buffer is None and value not in fixed and type_.shape:
            buffer = next((b for b in reversed(free) if b.fits(type_)), None)
            if buffer is not None:
                free.remove(buffer)
        if buffer is None:
            buffer = Buffer(type_)
        by_value[value] = buffer
        buffer.users += 1

    for value in (*flow.inputs, *flow.outputs):
        assign(value, None)
    for number, occurrence in enumerate(flow.occurrences):
        for position, value in enumerate(occurrence.made):
            in_place = occurrence.in_place if position == 0 else None
            assign(value, None if in_place is None else occurrence.inputs[in_place])
        for value in occurrence.inputs:
            readers_left[value] -= 1
        for value in dict.fromkeys((*occurrence.inputs, *occurrence.made)):
            buffer = by_value.get(value)
            if buffer is None or value in fixed or readers_left[value] > 0:
                continue
            buffer.users -= 1
            if not buffer.users:
                buffer.last = number
                free.append(buffer)
    return by_value
