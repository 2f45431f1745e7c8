"""Memory that a runtime plans ahead: values lie at offsets in one region.

The plan of a runtime's executed graph says which values share a buffer, so nothing else is stored.
Must not know how a walk uses the region.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bricks.decompose.buffers import Buffer, buffers
from bricks.decompose.layout import arrange
from bricks.decompose.memory import ACTIVATION, Flow, LiveRange, Memory, MemoryLayout
from bricks.graph.tensor import TensorType


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
