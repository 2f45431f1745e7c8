"""Scaled dot-product attention: one fused kernel on CUDA, whatever the processor made of it.

Which kernel CUDA takes follows from type, mask and size of heads, as in PyTorch's ``sdp_utils``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.backends.torch.cuda_calls.attention_kernels import Attention, FusedAttention, kernel_for
from bricks.backends.torch.cuda_calls.attention_math import Composed, composed
from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.layouts import relayout
from bricks.backends.torch.cuda_calls.listing import CallListing, carried

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.strides import Strides

_FUSED = "_scaled_dot_product_flash_attention_for_cpu"


def fuse_attention(listing: CallListing) -> int:
    """Replace attention by CUDA's kernels; return the number of attentions."""
    strides: dict[str, Strides] = {}
    count = _replace_fused(listing, strides)
    replaced = _Replaced(listing, strides)
    for each in composed(listing):
        count += replaced.note(each)
    listing.substitute(replaced.changes, replaced.renamed)
    relayout(listing, strides)
    return count


def _replace_fused(listing: CallListing, strides: dict[str, Strides]) -> int:
    """Replace the processor's own fused attention."""
    kernels: dict[str, tuple[FusedAttention, Attention]] = {}
    calls: list[IssuedCall] = []
    for call in listing.calls:
        others = [call]
        if call.operator == _FUSED:
            attention = _attention(call)
            kernel = kernel_for(listing, attention)
            if kernel is not None:
                kernels[call.outputs[1]] = kernel, attention
                others = carried(call, kernel.forward(attention))
                strides |= kernel.strides(attention)
        elif call.operator == f"{_FUSED}_backward" and call.positional[5].value in kernels:
            kernel, attention = kernels[call.positional[5].value]
            gradient, output = call.positional[0], call.positional[4]
            others = carried(call, kernel.backward(attention, gradient, output, call.outputs))
            strides |= kernel.gradient_strides(attention, call.outputs)
        calls += others
    listing.calls = calls
    return len(kernels)


def _attention(call: IssuedCall) -> Attention:
    query, key, value, *rest = call.positional
    dropout = rest[0] if rest else 0.0
    causal = rest[1] if len(rest) > 1 else False
    mask, scale = call.named.get("attn_mask"), call.named.get("scale")
    return Attention(query, key, value, mask, dropout, causal, scale, call.outputs[0])


@dataclass(slots=True)
class _Replaced:
    """Attentions of single calls and what replaces them.

    ``changes`` are the calls in the place of others, by their positions. A training step keeps each
    output under another name, which ``renamed`` has.
    """

    listing: CallListing
    strides: dict[str, Strides]
    changes: dict[range, list[IssuedCall]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def note(self, each: Composed) -> int:
        """Note one attention; return the number that can be replaced, 1 or 0."""
        kernel = kernel_for(self.listing, each.attention)
        if kernel is None:
            return 0
        attention = replace(
            each.attention, query=self._kept(each.attention.query),
            key=self._kept(each.attention.key), value=self._kept(each.attention.value),
        )  # fmt: skip
        self.strides |= kernel.strides(attention)
        calls = kernel.forward(attention)
        if each.backward is not None and each.gradient is not None:
            self.strides |= kernel.gradient_strides(attention, each.gradients)
            kept, again = self._detached(attention), self._detached(attention)
            calls.append(_detach(attention.output, kept))
            self.renamed[attention.output] = kept.value
            back = kernel.backward(attention, each.gradient, again, each.gradients)
            self.changes[each.backward] = [_detach(kept.value, again), *back]
        self.changes[each.forward] = calls
        return 1

    def _kept(self, operand: Operand) -> Operand:
        return replace(operand, value=self.renamed.get(operand.value, operand.value))

    def _detached(self, attention: Attention) -> Operand:
        type_ = self.listing.types[attention.output]
        name = self.listing.new("detach", type_.dtype, type_.shape)
        self.strides[name] = self.strides[attention.output]
        return Operand(name, 0, self.strides[name])


def _detach(source: str, output: Operand) -> IssuedCall:
    read = Operand(source, 0, output.strides)
    return IssuedCall("detach", [read], (output.value,), shared={output.value: source})
