"""Batch norm: cuDNN normalises images, PyTorch's own kernels the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing

# Samples up to which cuDNN is used, in training and in inference.
_SAMPLES = {True: 880_801, False: 65_535}


def use_cudnn(listing: CallListing) -> int:
    """Replace batch norm by cuDNN's where PyTorch prefers it; return the number of calls."""
    reserves: dict[str, str] = {}
    calls: list[IssuedCall] = []
    for call in listing.calls:
        chosen = call.operator == "native_batch_norm" and _cudnn(listing, call)
        if not chosen:
            _size(listing, call)
            calls.append(call)
            continue
        if calls and _is_reserve(listing, calls[-1]):
            calls.pop()
        reserve = listing.new("reserve", "UINT8", (0,))
        reserves[call.outputs[2]] = reserve
        calls.append(_forward(call, reserve))
    listing.calls = calls
    listing.rewrite(lambda call: _backward(call, reserves))
    return len(reserves)


def _cudnn(listing: CallListing, call: IssuedCall) -> bool:
    """Whether PyTorch chooses cuDNN, as ``_batch_norm_impl_index`` does."""
    read, *weights = call.positional[:5]
    type_ = listing.types[read.value]
    return (
        type_.dtype != "BFLOAT16"
        and all(isinstance(weight, Operand) for weight in weights)
        and len(type_.shape) >= 3
        and type_.shape[0] <= _SAMPLES[call.positional[5]]
        and type_.elements < 1 << 31
    )


def _size(listing: CallListing, call: IssuedCall) -> None:
    """Give the kept statistics the type of CUDA's own kernel, which keeps them in inference too."""
    if call.operator == "native_batch_norm":
        read = listing.types[call.positional[0].value]
        dtype = "DOUBLE" if read.dtype == "DOUBLE" else "FLOAT"
        for name in call.outputs[1:]:
            listing.types[name] = TensorType(dtype, (read.shape[1],))


def _is_reserve(listing: CallListing, call: IssuedCall) -> bool:
    """Whether a call allocates the empty workspace of other kernels."""
    return call.operator == "empty.memory_format" and listing.types[call.outputs[0]].shape == (0,)


def _forward(call: IssuedCall, reserve: str) -> IssuedCall:
    return replace(call, operator="cudnn_batch_norm", outputs=(*call.outputs, reserve))


def _backward(call: IssuedCall, reserves: dict[str, str]) -> Sequence[IssuedCall] | None:
    if call.operator != "native_batch_norm_backward" or not call.positional[7]:
        return None
    gradient, read, weight, mean, variance, saved_mean, saved, _, epsilon, *_ = call.positional
    reserve = reserves.get(getattr(saved, "value", ""))
    if reserve is None:
        return None
    arguments: list[Any] = [read, gradient, weight, mean, variance, saved_mean, saved, epsilon]
    arguments.append(Operand(reserve, 0, (1,)))
    return [replace(call, operator="cudnn_batch_norm_backward", positional=arguments, freed=())]
