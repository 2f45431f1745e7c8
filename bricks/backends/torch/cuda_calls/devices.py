"""Arguments that name a device: what a call creates lies on the GPU."""

from __future__ import annotations

from typing import Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall
from bricks.backends.torch.cuda_calls.listing import CallListing

_CPU = {"device": "cpu"}
# What Python code asks for, and what PyTorch's own code does, which knows the number of the GPU.
_ASKED, _NUMBERED = {"device": "cuda"}, {"device": "cuda:0"}


def put_on_gpu(listing: CallListing) -> int:
    """Let calls create their tensors on the GPU; return the number of calls."""
    return listing.rewrite(_on_gpu)


def _on_gpu(call: IssuedCall) -> list[IssuedCall] | None:
    if _CPU not in [*call.positional, *call.named.values()]:
        return None
    device = _ASKED if "pin_memory" in call.named else _NUMBERED

    def moved(each: Any) -> Any:
        return dict(device) if each == _CPU else each

    return [call.with_arguments(moved)]
