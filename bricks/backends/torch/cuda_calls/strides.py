"""Strides of views, as PyTorch computes them; all in elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bricks.graph.program import contiguous

Strides = tuple[int, ...]


def reordered(strides: Sequence[int], first: int, second: int) -> Strides:
    """Strides with two dimensions exchanged."""
    order = list(strides)
    order[first], order[second] = order[second], order[first]
    return tuple(order)


def expanded(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Strides:
    """Strides of a tensor after expanding it from ``shape`` to the ``wanted`` shape."""
    added = len(wanted) - len(shape)
    old = [(1, 0)] * added + list(zip(shape, strides, strict=True))
    return tuple(
        stride if of in (size, -1) else 0 for (size, stride), of in zip(old, wanted, strict=True)
    )


def viewed(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Strides | None:
    """Strides of a view in the ``wanted`` shape; None if no view has it (``computeStride``)."""
    sizes = _inferred(wanted, math.prod(shape))
    if math.prod(shape) == 0:
        return contiguous(sizes)
    result: list[int] = []
    at = len(sizes) - 1
    base, span, size = (strides[-1] if strides else 1), 1, 1
    for dim in range(len(shape) - 1, -1, -1):
        size *= shape[dim]
        joins = dim > 0 and (shape[dim - 1] == 1 or strides[dim - 1] == size * base)
        if joins:
            continue
        while at >= 0 and (span < size or sizes[at] == 1):
            result.insert(0, span * base)
            span *= sizes[at]
            at -= 1
        if span != size:
            return None
        if dim > 0:
            base, span, size = strides[dim - 1], 1, 1
    while at >= 0:
        result.insert(0, span * base)
        at -= 1
    return tuple(result)


def _inferred(sizes: Sequence[int], elements: int) -> list[int]:
    known = math.prod(size for size in sizes if size >= 0)
    return [elements // max(1, known) if size < 0 else size for size in sizes]


def dense_like(shape: Sequence[int], strides: Sequence[int]) -> Strides:
    """Strides without gaps in the order of another tensor's (``alloc_with_matching_layout``)."""
    result = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (strides[dim], -dim)):
        result[dim] = step
        step *= shape[dim]
    return tuple(result)


_View = Callable[[Sequence[int], Sequence[int], Sequence[Any]], Strides | None]


def _transposed(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    first, second = of if of else (0, 1)
    return reordered(strides, first, second)


def _permuted(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    return tuple(strides[dim] for dim in of[0])


def _unsqueezed(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    dim = of[0] % (len(shape) + 1)
    new = shape[dim] * strides[dim] if dim < len(shape) else 1
    return (*strides[:dim], new, *strides[dim:])


def _without(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    dim = (of[0] if of else 0) % len(shape)
    return (*strides[:dim], *strides[dim + 1 :])


def _squeezed(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    return _without(shape, strides, of) if shape[of[0] % len(shape)] == 1 else tuple(strides)


def _sliced(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    dim, step = (of[0] if of else 0) % len(shape), of[3] if len(of) > 3 else 1
    return tuple(stride * step if at == dim else stride for at, stride in enumerate(strides))


def _same(shape: Sequence[int], strides: Sequence[int], of: Sequence[Any]) -> Strides:
    return tuple(strides)


# Operators whose results are views of their first tensor, without overloads; then their arguments.
VIEWS: Mapping[str, _View] = {
    "transpose": _transposed, "t": lambda shape, strides, of: tuple(reversed(strides)),
    "permute": _permuted, "unsqueeze": _unsqueezed, "squeeze": _squeezed, "select": _without,
    "slice": _sliced, "split": _same, "split_with_sizes": _same, "chunk": _same,
    "unbind": _without, "detach": _same, "alias": _same,
    "expand": lambda shape, strides, of: expanded(shape, strides, of[0]),
    "view": lambda shape, strides, of: viewed(shape, strides, of[0]),
    "_unsafe_view": lambda shape, strides, of: viewed(shape, strides, of[0]),
}  # fmt: skip
