"""Memory that a runtime plans ahead: values lie at offsets in one region.

The plan of a runtime's executed graph says which values share a buffer, so nothing else is stored.
Must not know how a walk uses the region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bricks.decompose.buffers import Buffer, buffers
from bricks.decompose.layout import arrange
from bricks.decompose.memory import (
    ACTIVATION,
    Allocation,
    Flow,
    LiveMemory,
    LiveRange,
    MemoryLayout,
    Phase,
)
from bricks.graph.program_phases import INFERENCE
from bricks.graph.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Planned:
    """Memory that is planned before a run, which is a single call of the runtime.

    :class:`~bricks.decompose.memory.Memory` documents the methods.
    """

    @property
    def kind(self) -> str:
        """A runtime that plans ahead does inference."""
        return INFERENCE

    @property
    def phases(self) -> tuple[Phase, ...]:
        """None: the only overhead is that of the one call."""
        return ()

    @property
    def gradients(self) -> tuple[int, ...]:
        """None."""
        return ()

    @property
    def outdated(self) -> bool:
        """Never: it follows from the plan."""
        return False

    @property
    def repeatable(self) -> bool:
        """An occurrence that runs again writes where it wrote before."""
        return True

    @property
    def processor_specific(self) -> bool:
        """The graph is optimised for a processor: blocked layouts, fused kernels."""
        return True

    @property
    def overheads(self) -> tuple[tuple[str, Phase], ...]:
        """None."""
        return ()

    @property
    def phase_names(self) -> tuple[str, ...]:
        """None."""
        return ()

    def storage(self, value: int) -> int:
        """The value itself: the layout decides on shared buffers."""
        return value

    def layout(self, flow: Flow) -> MemoryLayout:
        """Offsets in bytes, as the runtime would lay values out."""
        return arrange(flow)

    def allocations(self, flow: Flow) -> tuple[Allocation, ...]:
        """None."""
        return ()

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

    def peak(self, flow: Flow) -> LiveMemory | None:
        """None: it depends on arena, workspaces and forms of weights (``compose/memory``)."""
        return None

    def negligible(
        self, flow: Flow, tiny: Callable[[str], bool], computes_nothing: Callable[[str], bool]
    ) -> frozenset[int]:
        """None: the runtime has fused or removed such nodes."""
        return frozenset()

    def problem(self, occurrences: int, values: int) -> str | None:
        """None: there is nothing to contradict."""
        return None

    def to_json(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}


def _size_bytes(buffer: Buffer) -> int:
    type_ = buffer.type_
    sized = isinstance(type_, TensorType) and type_.dtype != "STRING"
    return type_.size_bytes if sized else 0
