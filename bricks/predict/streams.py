"""Tags and sizes of all operators except convolutions and products: streams through memory.

In the order of ``features.TAGS`` and ``SIZES``. Must not know latencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.operators.operator import Access
from bricks.predict.brick_node import BrickNode, shape_of

if TYPE_CHECKING:
    from bricks.predict.loops import Description

_MODES = ("mode", "reduction", "coordinate_transformation_mode", "nearest_mode", "direction")


def node_stream(node: BrickNode) -> Description:
    """Describe a stream: elements read and written, and the length of contiguous runs."""
    written = sum(t.elements for t in node.output_types if t is not None)
    arrays = [t for t in node.operands if t is not None and t.elements > 1]
    read = sum(t.elements for t in arrays)
    if node.features.selects:
        read = min(read, written)
    pattern, run = _pattern(node)
    window = node.attribute("kernel_shape", ())
    # Some models ask for a window that is larger than its input.
    taps = min(math.prod(window), math.prod(node.shape(0)[2:])) if window else 1
    taps = max(taps, int(node.attribute("size", 1) or 1))
    mode = "/".join(str(node.attribute(name, "")) for name in _MODES)
    tags = (node.layout, node.dtype, pattern, mode)
    return tags, (float(written), float(read), float(run), float(max(1, len(arrays))), float(taps))


def _pattern(node: BrickNode) -> tuple[str, int]:
    """The memory access pattern, and the number of contiguous elements."""
    shape = node.shape(0)
    access = node.features.access
    if access is Access.PERMUTED:
        return _permuted(shape, tuple(node.attribute("perm", ()) or range(len(shape))[::-1]))
    if access in (Access.ALONG_AXIS, Access.JOINING):
        axis = int(node.attribute("axis", -1))
        full_shape = node.output_shape if access is Access.JOINING else shape
        # Split and Concat cut along the axis, so the shortest piece counts.
        pieces = (
            [shape_of(t) for t in (*node.input_types, *node.output_types)]
            if len(full_shape)
            else []
        )
        along = [math.prod(p[axis:]) for p in pieces if len(p) == len(full_shape)]
        inner = math.prod(full_shape[axis:][1:]) <= 1
        return ("last" if inner else "axis"), min(along, default=1)
    if access is Access.REDUCING:
        axes = node.constant(1) or tuple(node.attribute("axes", ()) or ())
        inner = not axes or max(a % max(1, len(shape)) for a in axes) == len(shape) - 1
        return ("inner" if inner else "outer"), shape[-1] if shape else 1
    if access in (Access.BROADCASTING, Access.EXPANDING):
        return _broadcast(node)
    ends = node.output_shape or shape
    return f"plain{node.attribute('channels_last', 0)}", ends[-1] if ends else 1


def _permuted(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[str, int]:
    """A transpose's pattern and run, with axes of size one dropped and adjacent ones merged."""
    if sorted(perm) != list(range(len(shape))):
        return "unknown", 1
    long_axes = [axis for axis in perm if shape[axis] > 1]
    blocks: list[list[int]] = []
    for axis in long_axes:
        previous = blocks[-1][-1] if blocks else None
        between = () if previous is None else shape[previous + 1 : axis]
        if previous is not None and previous < axis and math.prod(between) == 1:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    if len(blocks) < 2:
        return "same", math.prod(shape)
    starts = [block[0] for block in blocks]
    moved = "one" if _moves_one(starts) else "several"
    if blocks[-1][-1] == max(long_axes):
        return f"{moved} outside", math.prod(shape[axis] for axis in blocks[-1])
    return f"{moved} inside", shape[max(long_axes)]


def _moves_one(order: Sequence[int]) -> bool:
    """Whether moving one axis leaves the others in order: runtimes have a fast path for that."""
    rests = ([*order[:i], *order[i + 1 :]] for i in range(len(order)))
    return any(rest == sorted(rest) for rest in rests)


def _broadcast(node: BrickNode) -> tuple[str, int]:
    """The innermost stretch over which all operands have the same access pattern."""
    out = node.output_shape
    expanding = node.features.access is Access.EXPANDING
    operands = node.input_types[:1] if expanding else node.input_types
    smallest = min(map(shape_of, operands), key=math.prod, default=())
    size = math.prod(smallest)
    if size <= 1:
        return "scalar", math.prod(out)
    if size == math.prod(out):
        return "equal", size
    padded = (1,) * (len(out) - len(smallest)) + smallest
    same = len(padded) == len(out) and padded[-1] == out[-1]
    run = 1
    for ours, theirs in zip(reversed(padded), reversed(out), strict=False):
        if (ours == theirs) != same and theirs > 1:
            break
        run *= theirs
    return ("tail" if same else "repeated"), run
