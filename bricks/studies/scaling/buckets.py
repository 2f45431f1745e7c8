"""Buckets of gradients that are reduced together.

As PyTorch's DistributedDataParallel makes them from its second step on (``c10d/reducer.cpp``,
``rebuild_buckets`` and ``compute_bucket_assignment_by_size``; Li et al., VLDB 2020). A bucket takes
gradients in the order in which they become ready, and is full once it holds at least its limit: no
parameter is split, so buckets overshoot. Each dtype has buckets of its own. Must not know the cost
of reducing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20

# Of the first bucket of each type, so that communication begins early, and of the others
# (``_DEFAULT_FIRST_BUCKET_BYTES`` in ``c10d/reducer.hpp``, ``bucket_cap_mb`` of DDP).
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 * MIB, 25 * MIB


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a parameter: ``size_bytes`` in numbers of type ``dtype``."""

    parameter: str
    size_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together, by their positions in the order of becoming ready."""

    members: tuple[int, ...]
    size_bytes: int
    dtype: str

    @property
    def complete_at(self) -> int:
        """The position of the last gradient: with it, the bucket is complete."""
        return max(self.members)


def bucket_limits(cap_bytes: int | None = None) -> tuple[int, ...]:
    """The limits of the first bucket of a type and of further ones.

    DDP makes the first bucket smaller unless a size is asked for.
    """
    return (FIRST_BUCKET_BYTES, BUCKET_BYTES) if cap_bytes is None else (cap_bytes,)


def assign(gradients: Sequence[Gradient], limits: Sequence[int]) -> tuple[Bucket, ...]:
    """The buckets of ``gradients``, which are in the order in which they become ready.

    ``limits`` are bytes of the first bucket of a dtype, of the second, and so on; the last limit
    holds for all further buckets. Buckets are in the order in which they are reduced: full buckets
    as they fill up, then one of each dtype that is not full, the latest dtype first, as PyTorch's
    table of types gives them.
    """
    full: list[Bucket] = []
    open_: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    made: dict[str, int] = {}
    for position, gradient in enumerate(gradients):
        dtype = gradient.dtype
        open_.setdefault(dtype, []).append(position)
        sizes[dtype] = sizes.get(dtype, 0) + gradient.size_bytes
        number = made.setdefault(dtype, 0)
        if sizes[dtype] >= limits[min(number, len(limits) - 1)]:
            full.append(Bucket(tuple(open_[dtype]), sizes[dtype], dtype))
            open_[dtype], sizes[dtype], made[dtype] = [], 0, number + 1
    rest = [
        Bucket(tuple(members), sizes[dtype], dtype)
        for dtype, members in reversed(open_.items())
        if members
    ]
    return (*full, *rest)
