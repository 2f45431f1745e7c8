"""The kernel of attention that PyTorch calls for a decoder's 16-bit queries, keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.backends.torch.cuda_calls.attention_kernels import (
    Attention,
    CudnnKernel,
    FusedAttention,
    kernel_for,
)
from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.strides import dense_like
from bricks.graph.program_phases import FORWARD

if TYPE_CHECKING:
    from bricks.backends.torch.decoders.tape import Tape


def attended(tape: Tape, query: Operand, key: Operand, value: Operand, *, causal: bool) -> Operand:
    """Attention of (texts, heads, tokens, head) tensors; keys may have fewer heads."""
    shape = tape.shape(query)
    strides = dense_like(shape, query.strides)
    output = tape.new("attention", shape)
    attention = Attention(query, key, value, None, 0.0, causal, None, output)
    kernel: FusedAttention | None = kernel_for(tape.listing, attention)
    if isinstance(kernel, CudnnKernel):
        calls = kernel.forward(attention)
    else:
        calls = [_flash(tape, attention)]
    tape.listing.calls += [replace(call, phase=FORWARD) for call in calls]
    return Operand(output, 0, strides)


def _flash(tape: Tape, of: Attention) -> IssuedCall:
    """Flash attention, which takes wider heads than cuDNN."""
    name = "_scaled_dot_product_flash_attention"
    texts, heads, tokens, _ = tape.shape(of.query)
    sums = tape.new("logsumexp", (texts, heads, tokens), "FLOAT")
    seeds = [tape.new("rng_state", shape, "UINT64") for shape in ((2,), ())]
    outputs = (of.output, sums, "", "", *seeds, "")
    arguments = [of.query, of.key, of.value, *([0.0, True] if of.causal else [])]
    return IssuedCall(name, arguments, outputs)
