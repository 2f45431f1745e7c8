"""ONNX Runtime's blocked layout (NCHWc): arrays in it, and the size of a block.

``block`` neighbouring channels of a pixel are contiguous, so that one vector instruction reads
them. A blocked value has the shape of the plain layout. Must not know which operators read it.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import onnx
from onnx import TensorProto, helper

from bricks.errors import ModelError

DOMAIN = "com.microsoft.nchwc"

# The channels of the largest block of any runtime; the probe has a second position of each.
_MOST_CHANNELS = 64


class BlockedLayout(Enum):
    """The content of a blocked array: images (N, C, H, W), or filters (O, I, H, W)."""

    IMAGES = "images"
    FILTERS = "filters"


def blocked(array: np.ndarray, layout: BlockedLayout, block: int) -> np.ndarray:
    """``array`` of four axes in blocks of ``block`` channels, with an unchanged shape.

    Fewer channels than a block are not blocked, neither channels of images nor inputs of filters.
    Raises :class:`ModelError` if more channels are no multiple of a block.
    """
    axes = _blocked_axes(array.shape, layout, block)
    split = [part for k, size in enumerate(array.shape) for part in _split(size, block, k in axes)]
    outer, inner, at = [], [], 0
    for k in range(array.ndim):
        outer.append(at)
        if k in axes:
            inner.append(at + 1)
        at += 1 + (k in axes)
    # Of a filter, the inputs of a block come before its outputs.
    order = [*outer, *reversed(inner)]
    return np.ascontiguousarray(array.reshape(split).transpose(order)).reshape(array.shape)


def _blocked_axes(shape: tuple[int, ...], layout: BlockedLayout, block: int) -> list[int]:
    channel_axes = [1] if layout is BlockedLayout.IMAGES else [0, 1]
    axes = [k for k in channel_axes if k == 0 or shape[k] >= block]
    for k in axes:
        if shape[k] % block:
            raise ModelError(
                f"{shape[k]} channels are no multiple of this processor's blocks of {block}: they"
                " were blocked on another processor"
            )
    return axes


def _split(size: int, block: int, is_blocked: bool) -> list[int]:
    return [size // block, block] if is_blocked else [size]


def layout_probe() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model that reorders its input into the blocked layout, and an input for it."""
    shape = [1, _MOST_CHANNELS, 1, 2]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "layout", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {"x": np.arange(2 * _MOST_CHANNELS, dtype=np.float32).reshape(shape)}


def block_of(output: np.ndarray) -> int:
    """The block size, from a runtime's output of :func:`layout_probe`."""
    (second,) = np.flatnonzero(output.ravel() == 1)  # the first channel's second pixel
    return int(second)
