"""Embedding bags: what the kernels keep for the backward pass has other sizes on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.issued import IssuedCall
    from bricks.backends.torch.cuda_calls.listing import CallListing

_MAX = 2


def size_bags(listing: CallListing) -> int:
    """Give embedding bags the sizes that a GPU's kernels return; return the number of calls."""
    bags = [call for call in listing.calls if call.name == "_embedding_bag"]
    for call in bags:
        _size(listing, call)
    return len(bags)


def _size(listing: CallListing, call: IssuedCall) -> None:
    """The bag of each index, the size of each bag, and the largest indices of a maximum."""
    types = listing.types
    _, indices, offsets, *rest = call.positional
    _, bag_of_index, size_of_bag, largest = call.outputs
    mode = rest[1] if len(rest) > 1 else 0
    types[bag_of_index] = replace(types[bag_of_index], shape=types[indices.value].shape)
    types[size_of_bag] = replace(types[size_of_bag], shape=types[offsets.value].shape)
    if mode != _MAX:
        types[largest] = replace(types[largest], shape=(0,))
