"""Shapes and strides of elementwise results, as PyTorch's ``TensorIterator`` chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from bricks.graph.program import contiguous

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.strides import Strides

# The shape of a tensor, and its strides in elements.
Layout = tuple[Sequence[int], Sequence[int]]


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape of the result of operands with these shapes."""
    sizes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(max(of) for of in sizes)[::-1]


def result_strides(shape: Sequence[int], operands: Sequence[Layout]) -> Strides:
    """Strides of the result: dimensions in the order of the operands' strides, without gaps."""
    same = all(tuple(own) == tuple(shape) for own, _ in operands)
    if same and all(_is_contiguous(*operand) for operand in operands):
        return contiguous(shape)
    spread = [_spread(shape, *operand) for operand in operands]
    result, step = [0] * len(shape), 1
    for dim in _order(shape, spread):
        result[dim] = step
        step *= shape[dim]
    return tuple(result)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    plain = contiguous(shape)
    return all(
        size == 1 or own == wanted for size, own, wanted in zip(shape, strides, plain, strict=True)
    )


def _spread(shape: Sequence[int], own: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides over the dimensions of the result; 0 where the operand repeats."""
    added = len(shape) - len(own)
    repeated = [size == 1 != whole for size, whole in zip(own, shape[added:], strict=True)]
    known = zip(repeated, strides, strict=True)
    return [0] * added + [0 if repeats else stride for repeats, stride in known]


def _order(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """Dimensions from the fastest to the slowest (``reorder_dimensions``)."""
    order = list(range(len(shape)))[::-1]
    for last in range(1, len(order)):
        at = last
        for before in range(last - 1, -1, -1):
            turn = _compared(shape, operands, order[before], order[at])
            if turn < 0:
                break
            if turn > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order


def _compared(
    shape: Sequence[int], operands: Sequence[Sequence[int]], first: int, second: int
) -> int:
    """Above 0 where ``first`` is the slower dimension, below 0 where ``second`` is."""
    for strides in operands:
        one, other = strides[first], strides[second]
        if one and other and one != other:
            return 1 if one > other else -1
        if one and other and shape[first] > shape[second]:
            return 1
    return 0
