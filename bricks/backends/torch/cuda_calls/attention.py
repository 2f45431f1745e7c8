"""Scaled dot-product attention: which fused kernel CUDA chooses by type, mask and size of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand
from bricks.backends.torch.cuda_calls.listing import CallListing
from bricks.graph.program import UNDEFINED, contiguous

_CPU_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_EFFICIENT = "_scaled_dot_product_efficient_attention"
# Elements to which memory-efficient kernels align masks, and the sums that they keep.
_MASK, _SUMS = 16, 32


def use_efficient(listing: CallListing) -> int:
    """Replace the processor's fused attention by the memory-efficient one; return the number."""
    kernels = _Efficient(listing)
    count = listing.rewrite(kernels.forward)
    count += listing.rewrite(kernels.backward)
    for sums, seeds in kernels.seeds.items():
        listing.free_with(seeds, sums)
    return count


@dataclass(slots=True)
class _Efficient:
    """Memory-efficient attention; ``seeds`` are the states of dropout by the kept sums' name."""

    listing: CallListing
    seeds: dict[str, tuple[str, str]] = field(default_factory=dict)
    masks: dict[str, Operand] = field(default_factory=dict)

    def forward(self, call: IssuedCall) -> Sequence[IssuedCall] | None:
        if call.operator != _CPU_FLASH:
            return None
        query, key, value, *rest = call.positional
        dropout, causal = (*rest, 0.0, False)[:2] if len(rest) != 1 else (rest[0], False)
        output, sums = call.outputs
        keep = self.listing.training
        self._resize(sums, keep)
        mask = call.named.get("attn_mask")
        before = [] if mask is None else self._mask(mask, query, key)
        bias = None if mask is None else self.masks[mask.value]
        arguments: list[Any] = [query, key, value, bias, keep]
        if causal or dropout:
            arguments += [dropout, causal] if causal else [dropout]
        seeds = (self.listing.new("seed", "INT64", ()), self.listing.new("offset", "INT64", ()))
        self.seeds[sums] = seeds
        scale = {name: of for name, of in call.named.items() if name == "scale" and of is not None}
        after = replace(
            call, operator=_EFFICIENT, positional=arguments, named=scale,
            outputs=(output, sums, *seeds), freed=(),
        )  # fmt: skip
        if before:
            after = replace(after, freed=tuple(name for each in before for name in each.outputs))
        return [*before, after]

    def _resize(self, sums: str, keep: bool) -> None:
        """Give the kept sums of exponentials the type that CUDA's kernel gives them."""
        type_ = self.listing.types[sums]
        *outer, length = type_.shape
        padded = -(-length // _SUMS) * _SUMS if keep else 0
        self.listing.types[sums] = replace(type_, shape=(*outer, padded))

    def _mask(self, mask: Operand, query: Operand, key: Operand) -> list[IssuedCall]:
        """Calls that align a mask and expand it to all scores."""
        types = self.listing.types
        *outer, rows, _ = types[query.value].shape
        shape = (*outer, rows, types[key.value].shape[-2])
        expanded = self.listing.new("expand", types[mask.value].dtype, shape)
        strides = _expanded(types[mask.value].shape, mask.strides, shape)
        self.masks[mask.value] = Operand(expanded, 0, strides)
        return [
            IssuedCall("expand", [mask, list(shape)], (expanded,), shared={expanded: mask.value})
        ]

    def backward(self, call: IssuedCall) -> Sequence[IssuedCall] | None:
        if call.operator != f"{_CPU_FLASH}_backward":
            return None
        gradient, query, key, value, output, sums, dropout, causal = call.positional
        mask = call.named.get("attn_mask")
        bias = UNDEFINED if mask is None else self.masks.get(mask.value, mask)
        strides = contiguous(self.listing.types[sums.value].shape)
        seeds = [Operand(name, 0, ()) for name in self.seeds[sums.value]]
        arguments = [
            gradient, query, key, value, bias, output, replace(sums, strides=strides), *seeds,
            dropout, [True, True, True, False],
        ]  # fmt: skip
        if causal:
            arguments.append(True)
        return [
            replace(
                call,
                operator=f"{_EFFICIENT}_backward",
                positional=arguments,
                named={},
                outputs=(*call.outputs, ""),
                freed=(),
            )
        ]


def _expanded(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...]:
    """Strides of a tensor after expanding it from ``shape`` to the ``wanted`` shape."""
    added = len(wanted) - len(shape)
    old = [(1, 0)] * added + list(zip(shape, strides, strict=True))
    return tuple(
        stride if size == of else 0 for (size, stride), of in zip(old, wanted, strict=True)
    )
