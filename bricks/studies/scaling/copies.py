"""Bricks for the work of ranks that recorded steps lack: copies of gradients, and DDP's own code.

Copies of a few sizes are bricks of the same runtime; other sizes are interpolated. The time that
DDP with a single rank adds to steps of small programs, with few and many gradients, is a brick too:
a fixed cost and a cost per gradient follow from it. Must not know which bytes are copied, nor when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from bricks.decompose.identity import Cutter
from bricks.graph.form import DOMAIN
from bricks.graph.program import REPLICATED, Call
from bricks.graph.view import graph_of
from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# Bytes that are copied: from the smallest gradients to more than most caches hold.
SIZES = tuple(1 << power for power in (12, 16, 20, 23, 25))

_FLOAT = 4


# The number of gradients of small programs, and their bytes; the first two determine the fixed
# cost.
PROGRAMS = ((4, 1 << 8), (36, 1 << 8), (16, 1 << 16), (4, 1 << 22))


def by_size(times_s: Iterable[tuple[int, Interval]]) -> Curve:
    """Seconds over bytes: constant below the first size, proportional beyond the last."""
    return Curve.through(
        times_s, below=Extrapolation.CONSTANT, above=Extrapolation.PROPORTIONAL, widens=False
    )


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Seconds of moving gradients within a rank.

    ``copies_s`` are plain copies by bytes, ``ddp_step_s`` is the fixed cost of DDP in a step, and
    ``ddp_gradients_s`` its cost of a gradient by bytes, copied into a bucket and back.
    """

    copies_s: Curve
    ddp_step_s: Interval
    ddp_gradients_s: Curve
    measured: bool = True


@cache
def copy_bricks() -> tuple[Brick, ...]:
    """A brick for each of :data:`SIZES`: a tensor is copied into another."""
    return tuple(_copy(size_bytes // _FLOAT) for size_bytes in SIZES)


@cache
def ddp_bricks() -> tuple[Brick, ...]:
    """A brick for the time that DDP adds to a step of each of :data:`PROGRAMS`."""
    return tuple(_added(*program) for program in PROGRAMS)


def ddp_times(added_s: Sequence[Interval]) -> tuple[Interval, Curve]:
    """The fixed cost of DDP in a step, and its cost of a gradient by bytes; at least 0.

    ``added_s`` are the latencies of :func:`ddp_bricks`, whose errors are independent.
    """
    counts, sizes = zip(*PROGRAMS, strict=True)
    each_s = (added_s[1].value - added_s[0].value) / (counts[1] - counts[0])
    once_s = max(0.0, added_s[0].value - counts[0] * each_s)
    times_s = [
        Interval.around((one_s.value - once_s) / count, one_s.half_width / count).at_least(0.0)
        for one_s, count in zip(added_s[1:], counts[1:], strict=True)
    ]
    step_s = Interval.around(once_s, added_s[0].half_width).at_least(0.0)
    return step_s, by_size(zip(sizes[1:], times_s, strict=True))


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
