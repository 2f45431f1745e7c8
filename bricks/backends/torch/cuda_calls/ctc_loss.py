"""Connectionist temporal classification: on a GPU, PyTorch first asks whether cuDNN can do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.graph.program import contiguous

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing


def ask_libraries(listing: CallListing) -> int:
    """Insert the questions before each loss, which copy the targets; return their number."""

    def asked(call: IssuedCall) -> Sequence[IssuedCall] | None:
        return _asked(listing, call) if call.operator == "_ctc_loss" else None

    return listing.rewrite(asked)


def _asked(listing: CallListing, call: IssuedCall) -> list[IssuedCall]:
    scores, targets, *rest = call.positional
    lengths = rest[:3] if len(rest) > 2 else [*rest, 0]
    shape = listing.types[targets.value].shape
    copied = listing.new("targets", "INT32", shape)
    to_host = {"dtype": {"dtype": "int32"}, "device": {"device": "cpu"}}
    copy = Operand(copied, 0, contiguous(shape))
    return [
        IssuedCall("_use_cudnn_ctc_loss", [scores, targets, *lengths], ()),
        IssuedCall("_to_copy", [targets], (copied,), to_host),
        IssuedCall("_use_miopen_ctc_loss", [scores, copy, *lengths], (), freed=(copied,)),
        replace(call, freed=()),
    ]
