"""Arguments that name a device: what a call creates lies on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.issued import IssuedCall
    from bricks.backends.torch.cuda_calls.listing import CallListing

_CPU, _GPU = {"device": "cpu"}, {"device": "cuda"}


def put_on_gpu(listing: CallListing) -> int:
    """Let calls create their tensors on the GPU; return the number of calls."""
    return listing.rewrite(_on_gpu)


def _on_gpu(call: IssuedCall) -> list[IssuedCall] | None:
    if _CPU not in [*call.positional, *call.named.values()]:
        return None

    def moved(each: Any) -> Any:
        return dict(_GPU) if each == _CPU else each

    return [call.with_arguments(moved)]
