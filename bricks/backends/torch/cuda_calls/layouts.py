"""Carries other strides of results through the calls that read them.

Where CUDA's kernels return results in another layout, views of them have other strides, and a
reshape may be a view where it was a copy, or a copy where it was a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.listing import CallListing, carried
from bricks.backends.torch.cuda_calls.strides import VIEWS, Strides, viewed
from bricks.graph.program import contiguous

_CONTIGUOUS = {"memory_format": {"format": "contiguous_format"}}
# Operators, without overloads and underscores around them, whose results have their input's layout.
_ELEMENTWISE = frozenset({
    "add", "sub", "mul", "div", "relu", "gelu", "silu", "tanh", "sigmoid", "neg", "native_dropout",
    "native_dropout_backward", "to_copy", "empty_like", "ones_like", "zeros_like", "bernoulli",
})  # fmt: skip


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
            elif _is_copy(call) and following is not None and _reads(following, call.outputs[0]):
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
            if strides is None:
                return self._copied(call, first, shape)
            self.strides.update({output: strides for output in call.outputs})
        elif call.name.strip("_") in _ELEMENTWISE:
            equal = [name for name in call.outputs if self.listing.types[name].shape == shape]
            self.strides.update({output: first.strides for output in equal})
        return [call]

    def _copied(self, call: IssuedCall, source: Operand, shape: Sequence[int]) -> list[IssuedCall]:
        """A reshape of a tensor that no view can have: a copy, then a view."""
        copy = self.listing.new("clone", self.listing.types[source.value].dtype, shape)
        cloned = replace(
            call, operator="clone", positional=[source], named=dict(_CONTIGUOUS),
            outputs=(copy,), shared={}, freed=(),
        )  # fmt: skip
        output = call.outputs[0]
        self.strides[output] = contiguous(self.listing.types[output].shape)
        arguments = [Operand(copy, 0, contiguous(shape)), *call.positional[1:]]
        view = replace(call, operator="_unsafe_view", positional=arguments, shared={output: copy})
        return [cloned, view]


def _is_copy(call: IssuedCall) -> bool:
    return call.operator == "clone" and dict(call.named) == _CONTIGUOUS


def _reads(call: IssuedCall, value: str) -> bool:
    return any(operand.value == value for operand in call.operands)
