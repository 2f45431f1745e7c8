"""Strides of views, as PyTorch computes them; all in elements.

Where CUDA's kernels return results in another layout, other strides are carried through the calls
that read them: views have other strides, and a reshape may be a view where it was a copy, or a copy
where it was a view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bricks.backends.torch.cuda_calls.listing import CallListing, IssuedCall, Operand, carried
from bricks.graph.program import contiguous

Strides = tuple[int, ...]

_CONTIGUOUS = {"memory_format": {"format": "contiguous_format"}}
# Operators, without overloads and underscores around them, whose results have their input's layout.
_ELEMENTWISE = frozenset({
    "add", "sub", "mul", "div", "relu", "gelu", "silu", "tanh", "sigmoid", "neg", "native_dropout",
    "native_dropout_backward", "to_copy", "empty_like", "ones_like", "zeros_like", "bernoulli",
})  # fmt: skip


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
    elements = math.prod(shape)
    known = math.prod(size for size in wanted if size >= 0)
    sizes = [elements // max(1, known) if size < 0 else size for size in wanted]
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
    "permute": lambda shape, strides, of: tuple(strides[dim] for dim in of[0]),
    "unsqueeze": _unsqueezed, "squeeze": _squeezed, "select": _without, "slice": _sliced,
    "split": _same, "split_with_sizes": _same, "chunk": _same,
    "unbind": _without, "detach": _same, "alias": _same,
    "expand": lambda shape, strides, of: expanded(shape, strides, of[0]),
    "view": lambda shape, strides, of: viewed(shape, strides, of[0]),
    "_unsafe_view": lambda shape, strides, of: viewed(shape, strides, of[0]),
}  # fmt: skip


def relayout(listing: CallListing, strides: Mapping[str, Strides]) -> None:
    """Let the values named have these strides, and what is made of them accordingly."""
    if strides:
        listing.calls = _SettledLayouts(listing, dict(strides)).calls()


@dataclass(slots=True)
class _SettledLayouts:
    listing: CallListing
    strides: dict[str, Strides]
    renamed: dict[str, str] = field(default_factory=dict)

    def calls(self) -> list[IssuedCall]:
        calls: list[IssuedCall] = []
        rest = self.listing.calls
        at = 0
        while at < len(rest):
            call = rest[at].renamed(self.renamed)
            changed = call.with_arguments(self._placed)
            following = rest[at + 1] if at + 1 < len(rest) else None
            if changed == call:
                calls.append(call)
            elif (
                (call.operator == "clone" and dict(call.named) == _CONTIGUOUS)
                and following is not None
                and following.reads(call.outputs[0])
            ):
                others, used = self._copy(changed, following)
                calls += others
                at += used
            else:
                calls += self._followed(changed)
            at += 1
        return calls

    def _placed(self, each: Any) -> Any:
        if isinstance(each, Operand) and each.value in self.strides:
            return replace(each, strides=self.strides[each.value])
        return each

    def _copy(self, call: IssuedCall, following: IssuedCall) -> tuple[list[IssuedCall], int]:
        """A copy to a contiguous tensor that ``following`` reads; and how many of both are used."""
        source = call.positional[0]
        shape = self.listing.types[source.value].shape
        if following.operator == "_unsafe_view":
            strides = viewed(shape, source.strides, following.positional[1])
            if strides is None:
                return [call], 0
            view = replace(
                following, operator="view", positional=[source, following.positional[1]],
                shared={following.outputs[0]: source.value}, freed=(*call.freed, *following.freed),
            )  # fmt: skip
            return self._followed(view), 1
        if source.strides == contiguous(shape):
            self.renamed[call.outputs[0]] = source.value
            return carried(call, []), 0
        return [call], 0

    def _followed(self, call: IssuedCall) -> list[IssuedCall]:
        """A call that reads another layout; its results have another, too."""
        first = next(operand for operand in call.operands)
        shape = self.listing.types[first.value].shape
        if call.name in VIEWS:
            strides = VIEWS[call.name](shape, first.strides, call.positional[1:])
            if strides is None:  # a reshape that no view can have: a copy, then a view
                copy = self.listing.new("clone", self.listing.types[first.value].dtype, shape)
                cloned = replace(
                    call, operator="clone", positional=[first], named=dict(_CONTIGUOUS),
                    outputs=(copy,), shared={}, freed=(),
                )  # fmt: skip
                output = call.outputs[0]
                self.strides[output] = contiguous(self.listing.types[output].shape)
                read = [Operand(copy, 0, contiguous(shape)), *call.positional[1:]]
                shared = {output: copy}
                view = replace(call, operator="_unsafe_view", positional=read, shared=shared)
                return [cloned, view]
            self.strides.update({output: strides for output in call.outputs})
        elif call.name.strip("_") in _ELEMENTWISE:
            equal = [name for name in call.outputs if self.listing.types[name].shape == shape]
            self.strides.update({output: first.strides for output in equal})
        return [call]
