"""What ranks do that no recorded step has, as bricks: copies of gradients, and DDP's own code.

Copies of a few sizes are bricks of the same runtime; other sizes follow from them. What DDP with a
single rank adds to steps of small programs, with few and many gradients, is a brick too: so it is
known what DDP takes once and for each gradient. Must not know what is copied, nor when.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import TensorProto, helper

from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.program import DOMAIN, REPLICATED, Call
from bricks.graph.view import graph_of

# Bytes that are copied: from the smallest gradients to more than most caches hold.
SIZES = tuple(1 << power for power in (12, 16, 20, 23, 25))

_FLOAT = 4


# Gradients and their size in bytes in small programs; the first two tell what is done once.
PROGRAMS = ((4, 1 << 8), (36, 1 << 8), (16, 1 << 16), (4, 1 << 22))


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time with the ends of its interval."""

    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class TimesBySize:
    """Seconds for each of ``sizes_bytes``, with the ends of their intervals."""

    sizes_bytes: tuple[int, ...]
    times: tuple[Seconds, ...]

    def of(self, size_bytes: int, end: str = "seconds") -> float:
        """The seconds for any size: between two, and beyond the last, in proportion.

        ``end`` is ``seconds``, ``low_s`` or ``high_s``.
        """
        known: Sequence[float] = [getattr(each, end) for each in self.times]
        if size_bytes <= self.sizes_bytes[0]:
            return known[0]
        if size_bytes >= self.sizes_bytes[-1]:
            return known[-1] * size_bytes / self.sizes_bytes[-1]
        above = bisect_left(self.sizes_bytes, size_bytes)
        low, high = self.sizes_bytes[above - 1], self.sizes_bytes[above]
        share = (size_bytes - low) / (high - low)
        return known[above - 1] + share * (known[above] - known[above - 1])


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """What moving gradients within a rank takes.

    ``copies`` are plain copies by their size, ``ddp_step`` is what DDP takes around a step, and
    ``ddp_gradients`` what it takes for a gradient by its size, copying it into a bucket and back.
    """

    copies: TimesBySize
    ddp_step: Seconds
    ddp_gradients: TimesBySize
    measured: bool = True


@cache
def copy_bricks() -> tuple[Brick, ...]:
    """A brick for each of :data:`SIZES`: a tensor is copied into another."""
    return tuple(_copy(size_bytes // _FLOAT) for size_bytes in SIZES)


@cache
def ddp_bricks() -> tuple[Brick, ...]:
    """What DDP adds to a step of each of :data:`PROGRAMS`."""
    return tuple(_added(*program) for program in PROGRAMS)


def ddp_times(added: Sequence[Seconds]) -> tuple[Seconds, TimesBySize]:
    """What DDP takes for a step, and for gradients by their size.

    ``added`` are the latencies of :func:`ddp_bricks`, whose errors are independent.
    """
    counts, sizes = zip(*PROGRAMS, strict=True)
    each_s = (added[1].seconds - added[0].seconds) / (counts[1] - counts[0])
    once_s = max(0.0, added[0].seconds - counts[0] * each_s)
    halves_s = [(each.high_s - each.low_s) / 2 for each in added]
    times = [
        _within((each.seconds - once_s) / count, half_s / count)
        for each, count, half_s in zip(added[1:], counts[1:], halves_s[1:], strict=True)
    ]
    return _within(once_s, halves_s[0]), TimesBySize(sizes[1:], tuple(times))


def _within(seconds: float, half_s: float) -> Seconds:
    """No part of a step takes less than nothing."""
    ends = (max(0.0, seconds + off_s) for off_s in (0.0, -half_s, half_s))
    return Seconds(*ends)


def _added(gradients: int, size_bytes: int) -> Brick:
    arguments = [gradients, size_bytes // _FLOAT]
    node = Call(REPLICATED, "step", (arguments, {})).node([], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    return _brick(helper.make_graph([node], "steps", [], [y]), REPLICATED)


def _copy(count: int) -> Brick:
    node = Call("aten", "copy_", ([{"t": 0}, {"t": 1}], {}), aliases=(0,)).node(["to", "x"], ["y"])
    to, x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("to", "x", "y")
    )
    graph = helper.make_graph([node], "copy", [to, x], [y])
    return _brick(graph, "aten")


def _brick(graph: onnx.GraphProto, namespace: str) -> Brick:
    opsets = [helper.make_opsetid(DOMAIN + namespace, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Cutter(graph_of(model)).cut((0,)).brick
