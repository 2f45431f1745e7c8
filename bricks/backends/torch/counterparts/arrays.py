"""Counterparts of operators that move, concatenate, select and resize.

Some are views in PyTorch, which move no data. See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from bricks.backends.torch.counterparts.node import (
    OPERATORS,
    Compute,
    TorchNode,
    dtype_of,
    operator,
)

_SINGLE_CALLS: dict[str, Compute] = {
    "Concat": lambda n: torch.cat(n.tensors(), n.attribute("axis")),
    "GatherElements": lambda n: torch.gather(
        n.tensor(0), n.attribute("axis", 0), n.tensor(1).long()
    ),
    "Size": lambda n: np.array(n.tensor().numel(), np.int64),
    "Tile": lambda n: n.tensor().repeat(n.numbers(1)),
}
OPERATORS.update(_SINGLE_CALLS)


@operator("Shape")
def shape(n: TorchNode) -> np.ndarray:
    """Return the sizes, which need no call."""
    sizes = list(n.tensor().shape)
    return np.array(sizes[n.attribute("start", 0) : n.attribute("end", len(sizes))], np.int64)


@operator("Reshape")
def reshape(n: TorchNode) -> torch.Tensor:
    """Change the shape; a zero in it keeps a size."""
    x, sizes = n.tensor(), n.numbers(1, "shape")
    if not n.attribute("allowzero", 0):
        sizes = [x.shape[k] if size == 0 else size for k, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(n: TorchNode) -> torch.Tensor:
    """Reshape to two axes: all before ``axis``, and the rest."""
    x, axis = n.tensor(), n.attribute("axis", 1)
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(n: TorchNode) -> torch.Tensor:
    """Permute the axes, by default to the reverse order."""
    x = n.tensor()
    return x.permute(n.attribute("perm", list(reversed(range(x.ndim)))))


@operator("Squeeze")
def squeeze(n: TorchNode) -> torch.Tensor:
    """Remove axes of one element."""
    axes = n.numbers(1, "axes")
    return n.tensor().squeeze() if axes is None else n.tensor().squeeze(axes)


@operator("Unsqueeze")
def unsqueeze(n: TorchNode) -> torch.Tensor:
    """Insert axes of one element."""
    x, axes = n.tensor(), n.numbers(1, "axes")
    axes = axes if isinstance(axes, list) else [axes]
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Split")
def split(n: TorchNode) -> Sequence[torch.Tensor]:
    """Split along an axis; the last part is smaller where they cannot be equal."""
    x, axis = n.tensor(), n.attribute("axis", 0)
    parts = n.numbers(1, "split")
    return torch.split(x, parts or -(-x.shape[axis] // len(n.outputs)), axis)  # type: ignore[no-any-return]


@operator("Slice")
def slice_of(n: TorchNode) -> torch.Tensor:
    """Take every ``steps``-th element between two positions of some axes."""
    x = n.tensor()
    starts, ends = n.numbers(1, "starts"), n.numbers(2, "ends")
    axes = n.numbers(3, "axes", list(range(len(starts))))
    steps = n.numbers(4, "", [1] * len(starts))
    if any(step < 0 for step in steps):
        raise n.refused("steps backwards")
    slices = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        slices[axis] = slice(start, end, step)
    return x[tuple(slices)]


@operator("Gather")
def gather(n: TorchNode) -> torch.Tensor:
    """Index along an axis; one fixed index is a view."""
    x, axis = n.tensor(0), n.attribute("axis", 0)
    before = (slice(None),) * (axis % x.ndim)
    index = n.operand(1)
    return x[(*before, index if isinstance(index, int) else index.long())]


@operator("GatherND")
def gather_nd(n: TorchNode) -> torch.Tensor:
    """Index with vectors of indices."""
    n.default_only(batch_dims=0)
    return n.tensor(0)[n.tensor(1).long().unbind(-1)]


@operator("ScatterElements")
def scatter_elements(n: TorchNode) -> torch.Tensor:
    """Replace the elements of the first input at indices along an axis."""
    n.default_only(reduction="none")
    x, indices, updates = n.tensor(0), n.tensor(1), n.tensor(2)
    return torch.scatter(x, n.attribute("axis", 0), indices.long(), updates)


@operator("Expand")
def expand(n: TorchNode) -> torch.Tensor:
    """Broadcast to a shape."""
    x = n.tensor()
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(n.numbers(1))))


@operator("Pad")
def pad(n: TorchNode) -> torch.Tensor:
    """Pad with a constant; spatial axes also with elements of the input."""
    x, pads = n.tensor(), list(n.numbers(1, "pads"))
    axes = n.numbers(3, "", list(range(x.ndim)))
    mode = n.attribute("mode", "constant")
    padding = [(0, 0)] * x.ndim
    for number, axis in enumerate(axes):
        padding[axis] = pads[number], pads[number + len(axes)]
    if mode == "constant":
        value = n.numbers(2, "value", 0)
        value = value[0] if isinstance(value, list) else value
        return F.pad(x, _last_first(padding), value=value)
    known = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in known or not 3 <= x.ndim <= 5 or any(map(any, padding[:2])):
        raise n.refused(f"mode {mode} on such axes")
    return F.pad(x, _last_first(padding[2:]), mode=known[mode])


def _last_first(padding: Sequence[tuple[int, int]]) -> list[int]:
    """Flatten (begin, end) of each axis to PyTorch's order, which begins with the last axis."""
    return [size for pair in reversed(padding) for size in pair]


@operator("ConstantOfShape")
def constant_of_shape(n: TorchNode) -> torch.Tensor:
    """Fill a tensor with one number."""
    value = n.attribute("value", np.zeros(1, np.float32))
    return torch.full(n.numbers(0), value.item(), dtype=torch.from_numpy(value).dtype)


@operator("Trilu")
def triangle(n: TorchNode) -> torch.Tensor:
    """Keep the upper or lower triangle from a diagonal on."""
    compute = torch.triu if n.attribute("upper", 1) else torch.tril
    diagonal = n.numbers(1, "", 0)
    return compute(n.tensor(), diagonal[0] if isinstance(diagonal, list) else diagonal)


@operator("DepthToSpace")
def depth_to_space(n: TorchNode) -> torch.Tensor:
    """Move channels to pixels: in PyTorch's own order of channels (CRD), or the other."""
    x, block = n.tensor(), n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    split = x.reshape(batch, block, block, channels // block**2, height, width)
    return split.permute(0, 3, 4, 1, 5, 2).reshape(batch, -1, height * block, width * block)


@operator("SpaceToDepth")
def space_to_depth(n: TorchNode) -> torch.Tensor:
    """Move pixels to channels."""
    n.default_only(mode="DCR")
    x, block = n.tensor(), n.attribute("blocksize")
    batch, channels, height, width = x.shape
    split = x.reshape(batch, channels, height // block, block, width // block, block)
    turned = split.permute(0, 3, 5, 1, 2, 4)
    return turned.reshape(batch, -1, height // block, width // block)


@operator("EyeLike")
def eye_like(n: TorchNode) -> torch.Tensor:
    """Return ones on the diagonal."""
    n.default_only(k=0)
    x = n.tensor()
    number = n.attribute("dtype")
    dtype = x.dtype if number is None else dtype_of(n, number)
    return torch.eye(x.shape[0], x.shape[1], dtype=dtype)


# PyTorch's interpolations by mode, transformation of coordinates, and rounding.
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
def resize(n: TorchNode) -> torch.Tensor:
    """Resize spatial axes."""
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


def _interpolation(n: TorchNode) -> dict[str, Any]:
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
