"""Translations of operators that reshape, slice, resize or gather arrays, and of reductions.

See :mod:`bricks.backends.mxnet.operators`.
"""

from __future__ import annotations

from itertools import pairwise

import mxnet as mx
import numpy as np

from bricks.backends.mxnet.node import MIN, Node, Symbol, number, of_rank, operator


@operator("Shape")
def shape_of(n: Node) -> Symbol:
    """The sizes of a value's axes."""
    if n.attribute("start", 0) or n.attribute("end") is not None:
        raise n.refused("it gives all sizes or none")
    return mx.sym.shape_array(n.symbols[0], name=n.name)


@operator("Flatten")
def flatten(n: Node) -> Symbol:
    """A matrix of all elements."""
    if n.attribute("axis", 1) == 1:
        return mx.sym.flatten(n.symbols[0], name=n.name)
    return mx.sym.reshape(n.symbols[0], shape=n.outputs[0].shape, name=n.name)


@operator("Reshape", "Squeeze", "Unsqueeze")
def reshape(n: Node) -> Symbol:
    """Another shape for the same elements."""
    return mx.sym.reshape(n.symbols[0], shape=n.outputs[0].shape or (1,), name=n.name)


@operator("Transpose")
def transpose(n: Node) -> Symbol:
    """Axes in another order."""
    order = n.attribute("perm", list(reversed(range(len(n.shape())))))
    return mx.sym.transpose(n.symbols[0], axes=order, name=n.name)


@operator("Concat")
def concat(n: Node) -> Symbol:
    """Values concatenated along an axis."""
    axis = n.attribute("axis") % len(n.outputs[0].shape)
    return mx.sym.concat(*n.symbols, dim=axis, name=n.name)


@operator("Split")
def split(n: Node) -> list[Symbol]:
    """A value split along an axis."""
    axis = n.attribute("axis", 0) % len(n.shape())
    sizes = [type_.shape[axis] for type_ in n.outputs]
    if len(set(sizes)) == 1:
        parts = mx.sym.split(n.symbols[0], num_outputs=len(sizes), axis=axis, name=n.name)
        return [parts] if len(sizes) == 1 else list(parts)
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        mx.sym.slice_axis(n.symbols[0], axis=axis, begin=a, end=b, name=f"{n.name}_{i}")
        for i, (a, b) in enumerate(pairwise(ends))
    ]


@operator("Slice")
def slice_of(n: Node) -> Symbol:
    """A part of a value along some axes."""
    starts, ends = n.constant(1, "starts"), n.constant(2, "ends")
    axes = n.constant(3, "axes", list(range(len(starts))))
    steps = n.constant(4, default=[1] * len(starts))
    rank = len(n.shape())
    begin, end, step = [0] * rank, list(n.shape()), [1] * rank
    for start, stop, axis, by in zip(starts, ends, axes, steps, strict=True):
        if by < 1:
            raise n.refused("it goes backwards")
        axis %= rank
        begin[axis], end[axis], step[axis] = slice(start, stop, by).indices(n.shape()[axis])
    return mx.sym.slice(n.symbols[0], begin=begin, end=end, step=step, name=n.name)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


@operator("Pad")
def pad(n: Node) -> Symbol:
    """Padding of the spatial axes."""
    pads = n.constant(1, "pads")
    rank = len(n.shape())
    if n.has(3):
        raise n.refused("it pads all axes or none")
    mode = _PAD_MODES.get(n.attribute("mode", "constant"))
    if mode is None or rank not in (4, 5) or any(pads[i] or pads[rank + i] for i in (0, 1)):
        raise n.refused("it pads the spatial axes of images only")
    if any(p < 0 for p in pads):
        raise n.refused("it cannot cut with negative padding")
    value = number(n.constant(2, "value", 0.0), MIN)
    width = [p for i in range(rank) for p in (pads[i], pads[rank + i])]
    return mx.sym.pad(n.symbols[0], mode=mode, pad_width=width, constant_value=value, name=n.name)


@operator("Resize", "Upsample")
def resize(n: Node) -> Symbol:
    """A resized image: nearest neighbour by whole factors, or bilinear."""
    (_, _, *sizes), (_, _, *wanted) = n.shape(), n.outputs[0].shape
    mode = n.attribute("mode", "nearest")
    old = n.proto.op_type == "Upsample"
    way = n.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if len(sizes) != 2 or n.shape()[:2] != n.outputs[0].shape[:2]:
        raise n.refused("it resizes images only")
    if mode == "nearest":
        factors = {w / s for w, s in zip(wanted, sizes, strict=True)}
        factor = factors.pop()
        if factors or factor != int(factor) or not _repeats(n, way):
            raise n.refused("it repeats neighbours by one whole factor only")
        return mx.sym.UpSampling(
            n.symbols[0], scale=int(factor), sample_type="nearest", num_args=1, name=n.name
        )
    if mode == "linear" and _places_alike(n, way) and not n.attribute("antialias", 0):
        return mx.sym.contrib.BilinearResize2D(
            n.symbols[0],
            height=wanted[0],
            width=wanted[1],
            align_corners=way == "align_corners",
            name=n.name,
        )
    raise n.refused(f"it does not resize by {mode}, {way}")


# ONNX's names of the coordinate transformations that MXNet has.
_WAYS = ("align_corners", "half_pixel", "pytorch_half_pixel")


def _places_alike(n: Node, way: str) -> bool:
    """Whether MXNet, which takes sizes and no factors, samples at the same coordinates."""
    (_, _, *sizes), (_, _, *wanted) = n.shape(), n.outputs[0].shape
    factors = n.constant(2) or [1, 1, *(w / s for w, s in zip(wanted, sizes, strict=True))]
    whole = all(
        abs(size * factor - to) < 1e-3
        for size, factor, to in zip(sizes, factors[2:], wanted, strict=True)
    )
    return way in _WAYS and whole and (way != "pytorch_half_pixel" or min(wanted) > 1)


def _repeats(n: Node, way: str) -> bool:
    """Whether each input pixel is repeated equally often."""
    if n.proto.op_type == "Upsample":
        return True
    rounding = n.attribute("nearest_mode", "round_prefer_floor")
    if way == "asymmetric":
        return bool(rounding == "floor")
    return way in _WAYS[1:] and rounding in ("round_prefer_floor", "round_prefer_ceil")


@operator("DepthToSpace")
def depth_to_space(n: Node) -> Symbol:
    """Channels rearranged into pixels."""
    size = n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "DCR":
        return mx.sym.depth_to_space(n.symbols[0], block_size=size, name=n.name)
    batch, channels, height, width = n.shape()
    apart = (batch, channels // size**2, size, size, height, width)
    result = mx.sym.reshape(n.symbols[0], shape=apart, name=f"{n.name}_apart")
    result = mx.sym.transpose(result, axes=(0, 1, 4, 2, 5, 3), name=f"{n.name}_moved")
    return mx.sym.reshape(result, shape=n.outputs[0].shape, name=n.name)


_REDUCED = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod",
}  # fmt: skip


@operator(*_REDUCED)
def reduce(n: Node) -> Symbol:
    """A reduction along some axes."""
    axes = n.constant(1, "axes")
    if not axes and n.attribute("noop_with_empty_axes", 0):
        return mx.sym.identity(n.symbols[0], name=n.name)
    how = getattr(mx.sym, _REDUCED[n.proto.op_type])
    axes = tuple(axes) if axes else tuple(range(len(n.shape())))
    kept = bool(n.attribute("keepdims", 1))
    return how(n.symbols[0], axis=axes, keepdims=kept, name=n.name)


@operator("ReduceL2")
def reduce_l2(n: Node) -> Symbol:
    """The Euclidean norm along some axes."""
    axes = n.constant(1, "axes")
    axes = tuple(axes) if axes else tuple(range(len(n.shape())))
    kept = bool(n.attribute("keepdims", 1))
    return mx.sym.norm(n.symbols[0], ord=2, axis=axes, keepdims=kept, name=n.name)


@operator("Expand")
def expand(n: Node) -> Symbol:
    """A value broadcast to a larger shape."""
    wanted = n.outputs[0].shape
    result = of_rank(n.symbols[0], n.shape(), len(wanted), f"{n.name}_rank")
    return mx.sym.broadcast_to(result, shape=wanted, name=n.name)


@operator("Tile")
def tile(n: Node) -> Symbol:
    """A value repeated along its axes."""
    return mx.sym.tile(n.symbols[0], reps=n.constant(1), name=n.name)


@operator("Gather")
def gather(n: Node) -> Symbol:
    """Slices selected by index."""
    axis = n.attribute("axis", 0) % len(n.shape())
    picked = mx.sym.take(n.symbols[0], n.symbols[1], axis=axis, mode="wrap", name=f"{n.name}_taken")
    return mx.sym.reshape(picked, shape=n.outputs[0].shape or (1,), name=n.name)
