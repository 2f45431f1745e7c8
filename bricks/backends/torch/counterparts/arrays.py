"""Counterparts of operators that move, join, select and resize.

Some are views in PyTorch, which move nothing. See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bricks.backends.torch.counterparts.node import Node, dtype_of, operator


@operator("Shape")
def shape(n: Node) -> np.ndarray:
    """Known without a call."""
    sizes = list(n.tensor().shape)
    return np.array(sizes[n.attribute("start", 0) : n.attribute("end", len(sizes))], np.int64)


@operator("Size")
def size(n: Node) -> np.ndarray:
    """Known without a call."""
    return np.array(n.tensor().numel(), np.int64)


@operator("Reshape")
def reshape(n: Node) -> torch.Tensor:
    """Another shape; a zero in it keeps a size."""
    x, sizes = n.tensor(), n.numbers(1, "shape")
    if not n.attribute("allowzero", 0):
        sizes = [x.shape[k] if size == 0 else size for k, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(n: Node) -> torch.Tensor:
    """Two axes: all up to one, and the rest."""
    x, axis = n.tensor(), n.attribute("axis", 1)
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(n: Node) -> torch.Tensor:
    """Axes in another order, by default the reverse."""
    x = n.tensor()
    return x.permute(n.attribute("perm", list(reversed(range(x.ndim)))))


@operator("Squeeze")
def squeeze(n: Node) -> torch.Tensor:
    """Without axes of one element."""
    axes = n.numbers(1, "axes")
    return n.tensor().squeeze() if axes is None else n.tensor().squeeze(axes)


@operator("Unsqueeze")
def unsqueeze(n: Node) -> torch.Tensor:
    """With further axes of one element."""
    x, axes = n.tensor(), n.numbers(1, "axes")
    axes = axes if isinstance(axes, list) else [axes]
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Concat")
def concat(n: Node) -> torch.Tensor:
    """Tensors one after the other along an axis."""
    return torch.cat([n.tensor(k) for k in range(len(n.inputs))], n.attribute("axis"))


@operator("Split")
def split(n: Node) -> Sequence[torch.Tensor]:
    """Parts along an axis; the last one is smaller where they cannot be equal."""
    x, axis = n.tensor(), n.attribute("axis", 0)
    parts = n.numbers(1, "split")
    found: Sequence[torch.Tensor] = torch.split(
        x, parts or -(-x.shape[axis] // len(n.outputs)), axis
    )
    return found


@operator("Slice")
def slice_of(n: Node) -> torch.Tensor:
    """Every so many elements between two positions of some axes."""
    x = n.tensor()
    starts, ends = n.numbers(1, "starts"), n.numbers(2, "ends")
    axes = n.numbers(3, "axes", list(range(len(starts))))
    steps = n.numbers(4, "", [1] * len(starts))
    if any(step < 0 for step in steps):
        raise n.refused("steps backwards")
    taken = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        taken[axis] = slice(start, end, step)
    return x[tuple(taken)]


@operator("Gather")
def gather(n: Node) -> torch.Tensor:
    """What indices select along an axis; one fixed index is a view."""
    x, axis = n.tensor(0), n.attribute("axis", 0)
    before = (slice(None),) * (axis % x.ndim)
    index = n.operand(1)
    return x[(*before, index if isinstance(index, int) else index.long())]


@operator("GatherElements")
def gather_elements(n: Node) -> torch.Tensor:
    """What indices of the result's shape select along an axis."""
    return torch.gather(n.tensor(0), n.attribute("axis", 0), n.tensor(1).long())


@operator("GatherND")
def gather_nd(n: Node) -> torch.Tensor:
    """What vectors of indices select."""
    n.default_only(batch_dims=0)
    return n.tensor(0)[n.tensor(1).long().unbind(-1)]


@operator("ScatterElements")
def scatter_elements(n: Node) -> torch.Tensor:
    """The first input, with other elements where indices say so."""
    n.default_only(reduction="none")
    x, indices, updates = n.tensor(0), n.tensor(1), n.tensor(2)
    return torch.scatter(x, n.attribute("axis", 0), indices.long(), updates)


@operator("Expand")
def expand(n: Node) -> torch.Tensor:
    """Broadcast to a shape."""
    x = n.tensor()
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(n.numbers(1))))


@operator("Tile")
def tile(n: Node) -> torch.Tensor:
    """Repeated along each axis."""
    return n.tensor().repeat(n.numbers(1))


@operator("Pad")
def pad(n: Node) -> torch.Tensor:
    """More elements at the ends of axes: a constant, or of spatial axes what is inside."""
    x, pads = n.tensor(), list(n.numbers(1, "pads"))
    axes = n.numbers(3, "", list(range(x.ndim)))
    mode = n.attribute("mode", "constant")
    around = [(0, 0)] * x.ndim
    for number, axis in enumerate(axes):
        around[axis] = pads[number], pads[number + len(axes)]
    if mode == "constant":
        value = n.numbers(2, "value", 0)
        value = value[0] if isinstance(value, list) else value
        return F.pad(x, _last_first(around), value=value)
    known = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in known or not 3 <= x.ndim <= 5 or any(map(any, around[:2])):
        raise n.refused(f"mode {mode} on such axes")
    return F.pad(x, _last_first(around[2:]), mode=known[mode])


def _last_first(around: Sequence[tuple[int, int]]) -> list[int]:
    """Padding as PyTorch takes it."""
    return [size for pair in reversed(around) for size in pair]


@operator("ConstantOfShape")
def constant_of_shape(n: Node) -> torch.Tensor:
    """One number everywhere."""
    value = n.attribute("value")
    held = np.zeros(1, np.float32) if value is None else value
    return torch.full(n.numbers(0), held.item(), dtype=torch.from_numpy(held).dtype)


@operator("Trilu")
def triangle(n: Node) -> torch.Tensor:
    """The upper or lower triangle, beginning some diagonals off."""
    compute = torch.triu if n.attribute("upper", 1) else torch.tril
    diagonal = n.numbers(1, "", 0)
    return compute(n.tensor(), diagonal[0] if isinstance(diagonal, list) else diagonal)


@operator("DepthToSpace")
def depth_to_space(n: Node) -> torch.Tensor:
    """Channels become pixels: PyTorch's own order of them, or the other."""
    x, block = n.tensor(), n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    split = x.reshape(batch, block, block, channels // block**2, height, width)
    return split.permute(0, 3, 4, 1, 5, 2).reshape(batch, -1, height * block, width * block)


@operator("SpaceToDepth")
def space_to_depth(n: Node) -> torch.Tensor:
    """Pixels become channels."""
    n.default_only(mode="DCR")
    x, block = n.tensor(), n.attribute("blocksize")
    batch, channels, height, width = x.shape
    split = x.reshape(batch, channels, height // block, block, width // block, block)
    turned = split.permute(0, 3, 5, 1, 2, 4)
    return turned.reshape(batch, -1, height // block, width // block)


@operator("EyeLike")
def eye_like(n: Node) -> torch.Tensor:
    """Ones on the diagonal."""
    n.default_only(k=0)
    x = n.tensor()
    number = n.attribute("dtype")
    dtype = x.dtype if number is None else dtype_of(n, number)
    return torch.eye(x.shape[0], x.shape[1], dtype=dtype)


# What PyTorch's interpolation computes: mode, how positions are transformed, how they are rounded.
_INTERPOLATIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("nearest", "asymmetric", "floor"): {"mode": "nearest"},
    ("nearest", "half_pixel", "round_prefer_ceil"): {"mode": "nearest-exact"},
    ("linear", "half_pixel"): {"mode": "linear", "align_corners": False},
    ("linear", "pytorch_half_pixel"): {"mode": "linear", "align_corners": False},
    ("linear", "align_corners"): {"mode": "linear", "align_corners": True},
    ("cubic", "half_pixel"): {"mode": "cubic", "align_corners": False},
    ("cubic", "align_corners"): {"mode": "cubic", "align_corners": True},
}
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


@operator("Resize", "Upsample")
def resize(n: Node) -> torch.Tensor:
    """Spatial axes in another size."""
    n.default_only(exclude_outside=0, antialias=0, keep_aspect_ratio_policy="stretch")
    if n.attribute("axes") is not None:
        raise n.refused("axes")
    options = _interpolation(n)
    x = n.tensor()
    scales = n.numbers(1 if n.operator == "Upsample" or n.opset < 11 else 2, "scales")
    if scales:
        sizes = [math.floor(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    else:
        sizes = n.numbers(3)
        scales = [after / before for after, before in zip(sizes, x.shape, strict=True)]
    if list(x.shape[:2]) != sizes[:2]:
        raise n.refused("samples or channels that are resized")
    if n.attribute("coordinate_transformation_mode") == "pytorch_half_pixel" and 1 in sizes[2:]:
        raise n.refused("linear pytorch_half_pixel to one pixel")
    if any(abs(scale - after / before) > 1e-6 for scale, after, before in
           zip(scales, sizes, x.shape, strict=True)):  # fmt: skip
        raise n.refused("scales that give no whole size")
    return F.interpolate(x, sizes[2:], **options)


def _interpolation(n: Node) -> dict[str, Any]:
    """The options of PyTorch's interpolation."""
    older = n.operator == "Upsample" or n.opset < 11
    mode = n.attribute("mode", "nearest")
    transformed = n.attribute(
        "coordinate_transformation_mode", "asymmetric" if older else "half_pixel"
    )
    rounded = n.attribute("nearest_mode", "floor" if older else "round_prefer_floor")
    key = (mode, transformed, rounded) if mode == "nearest" else (mode, transformed)
    rank = n.tensor().ndim
    usual = mode != "cubic" or (rank == 4 and n.attribute("cubic_coeff_a", -0.75) == -0.75)
    if key not in _INTERPOLATIONS or rank not in _LINEAR or not usual:
        raise n.refused(" ".join(key))
    options = dict(_INTERPOLATIONS[key])
    names = {"linear": _LINEAR[rank], "cubic": "bicubic"}
    return options | {"mode": names.get(options["mode"], options["mode"])}
