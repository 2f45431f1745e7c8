"""The fused kernels of attention on CUDA: their calls, what they keep, the layout of results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.strides import Strides, dense_like, expanded
from bricks.graph.program import UNDEFINED, contiguous

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing

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

    listing: CallListing
    kept: dict[str, tuple[Operand, ...]] = field(default_factory=dict)
    masks: dict[str, Operand] = field(default_factory=dict)

    @abstractmethod
    def forward(self, attention: Attention) -> list[IssuedCall]:
        """Return the calls of the forward pass."""

    @abstractmethod
    def backward(
        self, attention: Attention, gradient: Operand, output: Operand, gradients: Sequence[str]
    ) -> list[IssuedCall]:
        """Return the calls that make the ``gradients`` of query, key and value."""

    @abstractmethod
    def strides(self, attention: Attention) -> dict[str, Strides]:
        """Return the strides of the output."""

    @abstractmethod
    def gradient_strides(
        self, attention: Attention, gradients: Sequence[str]
    ) -> dict[str, Strides]:
        """Return the strides of the gradients."""

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.listing.types[operand.value].shape

    def _mask(self, attention: Attention) -> tuple[list[IssuedCall], Operand | None]:
        """Calls that expand the mask to all scores, and the expanded mask."""
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

    def forward(self, attention: Attention) -> list[IssuedCall]:
        """Return the calls of the forward pass."""
        before, mask = self._mask(attention)
        keep = self.listing.training
        *outer, length, _ = self._shape(attention.query)
        padded = -(-length // self._ALIGNED) * self._ALIGNED if keep else 0
        sums = self._sums("logsumexp", (*outer, padded))
        kept = (sums, self._scalar("seed"), self._scalar("offset"))
        self.kept[attention.output] = kept
        arguments: list[Any] = [attention.query, attention.key, attention.value, mask, keep]
        outputs = (attention.output, *(operand.value for operand in kept))
        arguments += _optional(attention)
        return [*before, IssuedCall(self._NAME, arguments, outputs, _named(attention))]

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

    def strides(self, attention: Attention) -> dict[str, Strides]:
        """Return the strides of the output."""
        return {attention.output: _by_position(self._shape(attention.query))}

    def gradient_strides(
        self, attention: Attention, gradients: Sequence[str]
    ) -> dict[str, Strides]:
        """Return the strides of the gradients."""
        operands = (attention.query, attention.key, attention.value)
        return {
            name: _by_position(self._shape(operand))
            for name, operand in zip(gradients, operands, strict=True)
        }


class CudnnKernel(FusedAttention):
    """cuDNN's attention: half precision on Hopper and later; results have their inputs' layout."""

    _NAME = "_scaled_dot_product_cudnn_attention"

    def forward(self, attention: Attention) -> list[IssuedCall]:
        """Return the calls of the forward pass."""
        before, mask = self._mask(attention)
        keep = self.listing.training
        *outer, length, _ = self._shape(attention.query)
        sums = (self._sums("logsumexp", (*outer, length, 1)),) if keep else ()
        seeds = self._scalar("seed"), self._scalar("offset")
        self.kept[attention.output] = (*sums, *seeds)
        arguments: list[Any] = [attention.query, attention.key, attention.value, mask, keep]
        names = [operand.value for operand in (*sums, *seeds)]
        outputs = (attention.output, names[0] if keep else "", "", "", *names[-2:], "")
        arguments += _optional(attention)
        return [*before, IssuedCall(self._NAME, arguments, outputs, _named(attention))]

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

    def strides(self, attention: Attention) -> dict[str, Strides]:
        """Return the strides of the output."""
        query = attention.query
        return {attention.output: dense_like(self._shape(query), query.strides)}

    def gradient_strides(
        self, attention: Attention, gradients: Sequence[str]
    ) -> dict[str, Strides]:
        """Return the strides of the gradients."""
        operands = (attention.query, attention.key, attention.value)
        return {
            name: dense_like(self._shape(operand), operand.strides)
            for name, operand in zip(gradients, operands, strict=True)
        }


def _by_position(shape: Sequence[int]) -> Strides:
    """Strides of (batch, heads, length, size) laid out as (batch, length, heads, size)."""
    _, heads, length, size = shape
    return (heads * length * size, size, heads * size, 1)


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
