"""Attention that the processor computes by single calls: products, softmax, dropout.

PyTorch does so where attention drops out, which the processor's fused kernel cannot
(``_scaled_dot_product_attention_math``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.backends.torch.cuda_calls.attention_kernels import Attention
from bricks.backends.torch.cuda_calls.dropout import dropped_share
from bricks.backends.torch.cuda_calls.patterns import stretches

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
    from bricks.backends.torch.cuda_calls.listing import CallListing

_FLAT = r"(?:clone _unsafe_view |view )"
_PRODUCT = rf"expand {_FLAT}expand {_FLAT}bmm _unsafe_view "
_FORWARD = (
    r"mul\.Scalar (?:ones tril scalar_tensor scalar_tensor where\.self )?"
    r"transpose\.int mul\.Scalar "
    rf"{_PRODUCT}(?:add_?\.Tensor )?(?:_safe_softmax|_softmax) (?:detach )?"
    rf"(?:empty_like bernoulli_\.float div_\.Scalar mul\.Tensor )?{_PRODUCT}"
)
_PRODUCT_BACKWARD = r"transpose\.int bmm transpose\.int bmm view view "
_BACKWARD = (
    rf"{_FLAT}{_PRODUCT_BACKWARD}(?:mul\.Tensor )?detach _softmax_backward_data {_FLAT}"
    rf"{_PRODUCT_BACKWARD}mul\.Scalar transpose\.int mul\.Scalar "
)


@dataclass(frozen=True, slots=True)
class Composed:
    """An attention of single calls: their positions in the forward and backward pass.

    ``gradient`` is that of the output, ``gradients`` are those of query, key and value.
    """

    attention: Attention
    forward: range
    backward: range | None
    gradient: Operand | None
    gradients: tuple[str, ...]


def composed(listing: CallListing) -> Iterator[Composed]:
    """Yield the attentions of a program that single calls compute, in order."""
    calls = listing.calls
    backwards = {_softmax_of(calls, span): span for span in stretches(_BACKWARD, calls)}
    for forward in stretches(_FORWARD, calls):
        attention = _attention(listing, calls[forward.start : forward.stop])
        backward = backwards.get(_kept_softmax(calls, forward))
        if backward is None and listing.training:
            continue
        found = _composed(calls, attention, forward, backward)
        if _closed(calls, found):
            yield found


def _composed(
    calls: list[IssuedCall], attention: Attention, forward: range, backward: range | None
) -> Composed:
    if backward is None:
        return Composed(attention, forward, None, None, ())
    span = calls[backward.start : backward.stop]
    values = next(call for call in span if call.operator == "view" and call is not span[0])
    gradients = (span[-1].outputs[0], span[-2].outputs[0], values.outputs[0])
    return Composed(attention, forward, backward, span[0].positional[0], gradients)


def _attention(listing: CallListing, span: list[IssuedCall]) -> Attention:
    query = span[0].positional[0]
    by_name = {call.name: call for call in span}
    last_expand = [call for call in span if call.operator == "expand"][-1]
    transposed = next(call for call in span if call.operator == "transpose.int")
    key = transposed.positional[0]
    causal = "tril" in by_name
    added = next((call for call in span if call.operator in ("add.Tensor", "add_.Tensor")), None)
    drawn = by_name.get("bernoulli_")
    return Attention(
        query, key, last_expand.positional[0],
        None if causal or added is None else added.positional[1],
        0.0 if drawn is None else dropped_share(drawn),
        causal, _scale(listing, span[0], query), span[-1].outputs[0],
    )  # fmt: skip


def _scale(listing: CallListing, scaled: IssuedCall, query: Operand) -> float | None:
    """The scale of scores, unless it is the usual one; query and key get its root each."""
    scale = float(scaled.positional[1]) ** 2
    usual = 1 / math.sqrt(listing.types[query.value].shape[-1])
    return None if math.isclose(scale, usual, rel_tol=1e-9) else scale


def _kept_softmax(calls: list[IssuedCall], forward: range) -> str:
    """The value of the softmax as the backward pass reads it."""
    softmax = next(at for at in forward if "softmax" in calls[at].operator)
    following = calls[softmax + 1]
    return (following if following.operator == "detach" else calls[softmax]).outputs[0]


def _softmax_of(calls: list[IssuedCall], backward: range) -> str:
    at = next(at for at in backward if calls[at].operator == "_softmax_backward_data")
    value: str = calls[at - 1].positional[0].value
    return value


def _closed(calls: list[IssuedCall], found: Composed) -> bool:
    """Whether nothing but the attention's own calls reads what is made in between."""
    inside = {*found.forward, *(found.backward or ())}
    results = {found.attention.output, *found.gradients}
    made = {name for at in inside for name in calls[at].outputs} - results
    return not any(
        operand.value in made
        for at, call in enumerate(calls)
        if at not in inside
        for operand in call.operands
    )
