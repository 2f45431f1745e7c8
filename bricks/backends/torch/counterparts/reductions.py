"""Counterparts of reductions, searches and scans.

See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bricks.backends.torch.counterparts.node import TorchNode, operator

_Axes = Sequence[int]
_Reduce = Callable[[torch.Tensor, _Axes, bool], torch.Tensor]


def _product(x: torch.Tensor, axes: _Axes, keep: bool) -> torch.Tensor:
    """Multiply along one axis at a time, as PyTorch does."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, _Reduce] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(list(axes), keepdim=keep),
}


@operator(*_REDUCTIONS)
def reduction(n: TorchNode) -> torch.Tensor:
    """Reduce some axes, or all."""
    x = n.tensor()
    axes = n.numbers(1, "axes")
    if not axes:
        if n.attribute("noop_with_empty_axes", 0):
            raise n.refused("noop_with_empty_axes")
        axes = range(x.ndim)
    reduced = _REDUCTIONS[n.operator](x, tuple(axes), bool(n.attribute("keepdims", 1)))
    return reduced.to(x.dtype)  # PyTorch adds integers in more bits


@operator("ArgMax", "ArgMin")
def position(n: TorchNode) -> torch.Tensor:
    """Return the index of the greatest or least value along an axis."""
    n.default_only(select_last_index=0)
    compute = torch.argmax if n.operator == "ArgMax" else torch.argmin
    return compute(n.tensor(), n.attribute("axis", 0), bool(n.attribute("keepdims", 1)))


@operator("CumSum")
def running_sum(n: TorchNode) -> torch.Tensor:
    """Sum all values up to each along an axis."""
    n.default_only(exclusive=0, reverse=0)
    axis = n.numbers(1)
    x = n.tensor()
    return torch.cumsum(x, axis[0] if isinstance(axis, list) else axis, dtype=x.dtype)


@operator("TopK")
def top_k(n: TorchNode) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the greatest or least values along an axis, and their indices; of equal ones, any."""
    count = n.numbers(1, "k")
    (count,) = count if isinstance(count, list) else (count,)
    top = torch.topk(
        n.tensor(), count, n.attribute("axis", -1), bool(n.attribute("largest", 1)),
        bool(n.attribute("sorted", 1)),
    )  # fmt: skip
    return top.values, top.indices
