"""Dropout: one kernel on a GPU draws the mask and applies it; it keeps the mask as booleans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing

# The processor fills an empty tensor with zeros and ones, divides it by the share of ones, and
# multiplies it with the input.
_DRAWN = ("empty_like", "bernoulli_.float", "div_.Scalar", "mul.Tensor")


def fuse_dropout(listing: CallListing) -> int:
    """Replace dropout by the fused kernel; return the number of dropouts in the forward pass."""
    shares: dict[str, float] = {}
    calls: list[IssuedCall] = []
    rest = listing.calls
    at = 0
    while at < len(rest):
        window = rest[at : at + len(_DRAWN)]
        if _is_dropout(window):
            calls.append(_fused(listing, window, shares))
            at += len(_DRAWN)
        else:
            calls.append(rest[at])
            at += 1
    listing.calls = calls
    listing.rewrite(lambda call: _backward(call, shares))
    return len(shares)


def _is_dropout(window: Sequence[IssuedCall]) -> bool:
    """Whether four calls draw a mask and multiply the tensor that the mask is like with it."""
    if tuple(call.operator for call in window) != _DRAWN:
        return False
    like, _, divided, product = window
    read, mask = product.positional
    return (
        isinstance(mask, Operand)
        and mask.value == divided.outputs[0]
        and read.value == like.positional[0].value
    )


def dropped_share(drawn: IssuedCall) -> float:
    """The share of zeros that a call of ``bernoulli_`` draws, as the user wrote it."""
    kept = drawn.positional[1] if len(drawn.positional) > 1 else 0.5
    return round(1 - kept, 12)


def _fused(
    listing: CallListing, window: Sequence[IssuedCall], shares: dict[str, float]
) -> IssuedCall:
    _, drawn, divided, product = window
    mask, share = divided.outputs[0], dropped_share(drawn)
    shares[mask] = share
    listing.types[mask] = replace(listing.types[mask], dtype="BOOL")
    arguments: list[Any] = [product.positional[0], share, True]
    freed = tuple(name for call in window for name in call.freed)
    outputs = (product.outputs[0], mask)
    return IssuedCall("native_dropout", arguments, outputs, phase=product.phase, freed=freed)


def _backward(call: IssuedCall, shares: dict[str, float]) -> Sequence[IssuedCall] | None:
    """The gradient is multiplied with a mask that a fused dropout has kept."""
    masks = [o for o in call.operands if o.value in shares]
    if call.operator != "mul.Tensor" or not masks:
        return None
    gradient, mask = call.positional
    scale = 1.0 / (1.0 - shares[mask.value])
    arguments = [gradient, mask, scale]
    return [replace(call, operator="native_dropout_backward", positional=arguments, freed=())]
