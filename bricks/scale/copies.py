"""Copies of gradients as bricks: what it takes to move bytes within a rank's memory.

Buckets, fusion buffers and accumulated gradients are copies that no recorded step has. Copies of
a few sizes are bricks of the same runtime; other sizes follow from them. Must not know what is
copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from onnx import TensorProto, helper

from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.program import Call
from bricks.graph.view import graph_of

# Bytes that are copied: from the smallest gradients to more than most caches hold.
SIZES = tuple(1 << power for power in (12, 16, 20, 23, 25))

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """The seconds of copies of ``sizes_bytes``, with the ends of their intervals."""

    sizes_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    measured: bool = True

    def of(self, size_bytes: int, end: str = "seconds") -> float:
        """The seconds of a copy of any size: between two, and beyond the last, in proportion.

        ``end`` is ``seconds``, ``low_s`` or ``high_s``.
        """
        known: Sequence[float] = getattr(self, end)
        if size_bytes <= self.sizes_bytes[0]:
            return known[0]
        if size_bytes >= self.sizes_bytes[-1]:
            return known[-1] * size_bytes / self.sizes_bytes[-1]
        above = bisect_left(self.sizes_bytes, size_bytes)
        low, high = self.sizes_bytes[above - 1], self.sizes_bytes[above]
        share = (size_bytes - low) / (high - low)
        return known[above - 1] + share * (known[above] - known[above - 1])


@cache
def copy_bricks() -> tuple[Brick, ...]:
    """A brick for each of :data:`SIZES`: a tensor is copied into another."""
    return tuple(_copy(size_bytes // _FLOAT) for size_bytes in SIZES)


def _copy(count: int) -> Brick:
    node = Call("aten", "copy_", ([{"t": 0}, {"t": 1}], {}), aliases=(0,)).node(["to", "x"], ["y"])
    to, x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("to", "x", "y")
    )
    graph = helper.make_graph([node], "copy", [to, x], [y])
    opsets = [helper.make_opsetid("org.pytorch.aten", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Cutter(graph_of(model)).cut((0,)).brick
