"""Scaled dot-product attention: one fused kernel on CUDA, whatever the processor made of it.

Where attention drops out, which the processor's fused kernel cannot, the processor makes single
calls: products, softmax, dropout (``_scaled_dot_product_attention_math``). Which kernel CUDA takes
follows from type, mask and size of heads, as in PyTorch's ``sdp_utils``; from the kernel follow its
calls, what they keep, and the layout of results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bricks.backends.torch.cuda_calls.layers import dropped_share
from bricks.backends.torch.cuda_calls.listing import (
    CallListing,
    IssuedCall,
    Operand,
    carried,
    stretches,
)
from bricks.backends.torch.cuda_calls.strides import Strides, dense_like, expanded, relayout
from bricks.graph.program import UNDEFINED, contiguous

_FUSED = "_scaled_dot_product_flash_attention_for_cpu"


def fuse_attention(listing: CallListing) -> int:
    """Replace attention by CUDA's kernels; return the number of attentions."""
    strides: dict[str, Strides] = {}
    kernels: dict[str, tuple[FusedAttention, Attention]] = {}
    calls: list[IssuedCall] = []
    for call in listing.calls:
        others = [call]
        if call.operator == _FUSED:
            query, key, value, *rest = call.positional
            dropout = rest[0] if rest else 0.0
            causal = rest[1] if len(rest) > 1 else False
            mask, scale = call.named.get("attn_mask"), call.named.get("scale")
            attention = Attention(query, key, value, mask, dropout, causal, scale, call.outputs[0])
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
    count = len(kernels)
    replaced = _Replaced(listing, strides)
    for each in composed(listing):
        count += replaced.note(each)
    listing.substitute(replaced.changes, replaced.renamed)
    relayout(listing, strides)
    return count


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
        attention = _attention_math(listing, calls[forward.start : forward.stop])
        softmax = next(at for at in forward if "softmax" in calls[at].operator)
        following = calls[softmax + 1]  # the backward pass may read a detached value
        kept = (following if following.operator == "detach" else calls[softmax]).outputs[0]
        backward = backwards.get(kept)
        if backward is not None:
            span = calls[backward.start : backward.stop]
            values = next(call for call in span if call.operator == "view" and call is not span[0])
            gradients = (span[-1].outputs[0], span[-2].outputs[0], values.outputs[0])
            gradient = span[0].positional[0]
            found = Composed(attention, forward, backward, gradient, gradients)
        elif listing.training:
            continue
        else:
            found = Composed(attention, forward, None, None, ())
        if _closed(calls, found):
            yield found


def _attention_math(listing: CallListing, span: list[IssuedCall]) -> Attention:
    query = span[0].positional[0]
    by_name = {call.name: call for call in span}
    last_expand = [call for call in span if call.operator == "expand"][-1]
    transposed = next(call for call in span if call.operator == "transpose.int")
    key = transposed.positional[0]
    causal = "tril" in by_name
    added = next((call for call in span if call.operator in ("add.Tensor", "add_.Tensor")), None)
    drawn = by_name.get("bernoulli_")
    # Query and key get the root of the scale of scores each.
    scale = float(span[0].positional[1]) ** 2
    usual = 1 / math.sqrt(listing.types[query.value].shape[-1])
    own_scale = None if math.isclose(scale, usual, rel_tol=1e-9) else scale
    return Attention(
        query, key, last_expand.positional[0],
        None if causal or added is None else added.positional[1],
        0.0 if drawn is None else dropped_share(drawn),
        causal, own_scale, span[-1].outputs[0],
    )  # fmt: skip


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


_HALF = ("FLOAT16", "BFLOAT16")


@dataclass(frozen=True, slots=True)
class Attention:
    """One scaled dot-product attention of (batch, heads, length, size) tensors.

    ``mask`` is added to the scores, ``dropout`` a share; ``scale`` is None for the usual one.
    """

    query: Operand
    key: Operand
    value: Operand
    mask: Operand | None
    dropout: float
    causal: bool
    scale: float | None
    output: str


@dataclass(slots=True)
class FusedAttention(ABC):
    """A fused kernel; ``kept`` are values that its backward pass reads, by the output's name."""

    _NAME: ClassVar[str]

    listing: CallListing
    kept: dict[str, tuple[Operand, ...]] = field(default_factory=dict)
    masks: dict[str, Operand] = field(default_factory=dict)

    def forward(self, attention: Attention) -> list[IssuedCall]:
        """Return the calls of the forward pass."""
        before, mask = self._mask(attention)
        read = (attention.query, attention.key, attention.value)
        arguments = [*read, mask, self.listing.training, *_optional(attention)]
        outputs = (attention.output, *self._further(attention))
        return [*before, IssuedCall(self._NAME, arguments, outputs, _named(attention))]

    @abstractmethod
    def _further(self, attention: Attention) -> Sequence[str]:
        """The results after the output; those that the backward pass reads are noted as kept."""

    @abstractmethod
    def backward(
        self, attention: Attention, gradient: Operand, output: Operand, gradients: Sequence[str]
    ) -> list[IssuedCall]:
        """Return the calls that make the ``gradients`` of query, key and value."""

    @abstractmethod
    def _layout(self, operand: Operand) -> Strides:
        """The strides of the output if ``operand`` is the query, or of the gradient of it."""

    def strides(self, attention: Attention) -> dict[str, Strides]:
        """Return the strides of the output."""
        return {attention.output: self._layout(attention.query)}

    def gradient_strides(
        self, attention: Attention, gradients: Sequence[str]
    ) -> dict[str, Strides]:
        """Return the strides of the gradients."""
        operands = (attention.query, attention.key, attention.value)
        return dict(zip(gradients, map(self._layout, operands), strict=True))

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.listing.types[operand.value].shape

    def _mask(self, attention: Attention) -> tuple[list[IssuedCall], Operand | None]:
        mask = attention.mask
        if mask is None:
            return [], None
        *outer, rows, _ = self._shape(attention.query)
        shape = (*outer, rows, self._shape(attention.key)[-2])
        name = self.listing.new("expand", self.listing.types[mask.value].dtype, shape)
        whole = Operand(name, 0, expanded(self._shape(mask), mask.strides, shape))
        call = IssuedCall("expand", [mask, list(shape)], (name,), shared={name: mask.value})
        self.masks[attention.output] = whole
        return [call], whole

    def _scalar(self, stem: str) -> Operand:
        return Operand(self.listing.new(stem, "INT64", ()), 0, ())

    def _sums(self, stem: str, shape: Sequence[int]) -> Operand:
        return Operand(self.listing.new(stem, "FLOAT", shape), 0, contiguous(shape))


def _optional(attention: Attention) -> list[Any]:
    """The last arguments of a forward call, without those that have their defaults."""
    if attention.causal:
        return [attention.dropout, True]
    return [attention.dropout] if attention.dropout else []


def _named(attention: Attention) -> dict[str, Any]:
    return {} if attention.scale is None else {"scale": attention.scale}


class EfficientKernel(FusedAttention):
    """Memory-efficient attention: any mask, float32 too; results are laid out by position."""

    _NAME = "_scaled_dot_product_efficient_attention"
    _ALIGNED = 32

    def _further(self, attention: Attention) -> Sequence[str]:
        *outer, length, _ = self._shape(attention.query)
        padded = -(-length // self._ALIGNED) * self._ALIGNED if self.listing.training else 0
        sums = self._sums("logsumexp", (*outer, padded))
        kept = (sums, self._scalar("seed"), self._scalar("offset"))
        self.kept[attention.output] = kept
        return [operand.value for operand in kept]

    def backward(
        self, attention: Attention, gradient: Operand, output: Operand, gradients: Sequence[str]
    ) -> list[IssuedCall]:
        """Return the calls that make the ``gradients`` of query, key and value."""
        arguments: list[Any] = [
            gradient, attention.query, attention.key, attention.value,
            self.masks.get(attention.output, UNDEFINED), output, *self.kept[attention.output],
            attention.dropout, [True, True, True, False],
        ]  # fmt: skip
        if attention.causal:
            arguments.append(True)
        outputs = (*gradients, "")
        return [IssuedCall(f"{self._NAME}_backward", arguments, outputs, _named(attention))]

    def _layout(self, operand: Operand) -> Strides:
        # (batch, heads, length, size) laid out as (batch, length, heads, size)
        _, heads, length, size = self._shape(operand)
        return (heads * length * size, size, heads * size, 1)


class CudnnKernel(FusedAttention):
    """cuDNN's attention: half precision on Hopper and later; results have their inputs' layout."""

    _NAME = "_scaled_dot_product_cudnn_attention"

    def _further(self, attention: Attention) -> Sequence[str]:
        keep = self.listing.training
        *outer, length, _ = self._shape(attention.query)
        sums = (self._sums("logsumexp", (*outer, length, 1)),) if keep else ()
        seeds = self._scalar("seed"), self._scalar("offset")
        self.kept[attention.output] = (*sums, *seeds)
        names = [operand.value for operand in (*sums, *seeds)]
        return (names[0] if keep else "", "", "", *names[-2:], "")

    def backward(
        self, attention: Attention, gradient: Operand, output: Operand, gradients: Sequence[str]
    ) -> list[IssuedCall]:
        """Return the calls that make the ``gradients`` of query, key and value."""
        lengths = [self._shape(attention.query)[-2], self._shape(attention.key)[-2]]
        arguments = [
            gradient, attention.query, attention.key, attention.value, output,
            *self.kept[attention.output], self.masks.get(attention.output, UNDEFINED),
            UNDEFINED, UNDEFINED, *lengths, attention.dropout, attention.causal,
        ]  # fmt: skip
        name, named = f"{self._NAME}_backward", _named(attention)
        return [IssuedCall(name, arguments, tuple(gradients), named)]

    def _layout(self, operand: Operand) -> Strides:
        return dense_like(self._shape(operand), operand.strides)


def kernel_for(listing: CallListing, attention: Attention) -> FusedAttention | None:
    """Return the kernel that CUDA takes; None if it computes attention by single calls."""
    read = (attention.query, attention.key, attention.value)
    type_ = listing.types[attention.query.value]
    if any(operand.strides[-1] != 1 for operand in read):
        return None
    heads = listing.types[attention.key.value].shape[1]
    size = type_.shape[-1]
    if type_.dtype in _HALF and size % 8 == 0 and size <= 128:
        return CudnnKernel(listing)
    if heads != type_.shape[1] or len(type_.shape) != 4:
        return None
    return EfficientKernel(listing)
