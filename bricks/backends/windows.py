"""The windows of ONNX's convolutions and pools, for runtimes that translate operators.

Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Window = tuple[list[int], list[int], list[int], list[int]]


def window_of(
    attribute: Callable[[str, Any], Any], spatial: Sequence[int], kernel: Sequence[int]
) -> Window:
    """Return strides, dilations, and padding at the begin and the end of each spatial axis.

    ``attribute`` returns an attribute of the node, or a default; ``spatial`` are the sizes of the
    input without batch and channels.
    """
    rank = len(kernel)
    strides = list(attribute("strides", [1] * rank))
    dilations = list(attribute("dilations", [1] * rank))
    auto = attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = list(attribute("pads", [0] * (2 * rank)))
        return strides, dilations, pads[:rank], pads[rank:]
    if auto == "VALID":
        return strides, dilations, [0] * rank, [0] * rank
    begin, end = [], []
    for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        needed = max(0, (-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size)
        less, more = needed // 2, needed - needed // 2
        begin.append(less if auto == "SAME_UPPER" else more)
        end.append(more if auto == "SAME_UPPER" else less)
    return strides, dilations, begin, end
