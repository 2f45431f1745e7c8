"""Ranks of the fake runtime: they send nothing, and make up how long that takes.

An all-reduce between n ranks takes 2(n-1) messages of 50 µs, and moves bytes at 1 GB/s; a rank
computes half as fast meanwhile. So fits and formulas are exact. Must not know who asks.
"""

from __future__ import annotations

from itertools import count

from bricks.backends.ranks import CollectiveTimes

LATENCY_S, BYTES_PER_S, UNIT_S, SLOWDOWN = 50e-6, 1e9, 4e-4, 2.0

# Messages that follow each other, for each rank but one; each holds a rank's part of the tensor.
_FACTORS = {"all_reduce": 2.0, "broadcast": 1.0, "all_gather": 1.0, "reduce_scatter": 1.0}
_PATTERN = (0.0, 0.002, -0.002, 0.004, -0.004)


class FakeCollectives:
    """A rank among others of which it does not know."""

    def __init__(self) -> None:
        self._ranks = 1
        self._runs = count()

    def open_store(self, address: str, timeout_s: float) -> int:
        """Any port."""
        return 1

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Nothing is joined."""
        self._ranks = ranks

    def leave(self) -> None:
        """Nothing is left."""

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Times by formula, which vary by a fixed pattern."""
        messages = _FACTORS[operation] * (self._ranks - 1)
        seconds = messages * (LATENCY_S + num_bytes / self._ranks / BYTES_PER_S)
        factors = [1 + _PATTERN[next(self._runs) % len(_PATTERN)] for _ in range(passes)]
        if not computing:
            return CollectiveTimes(tuple(seconds * factor for factor in factors))
        return CollectiveTimes(
            tuple(seconds * SLOWDOWN * factor for factor in factors),
            before_s=tuple(UNIT_S * factor for factor in factors),
            during_s=tuple(UNIT_S * SLOWDOWN * factor for factor in factors),
        )
