"""Ranks of the fake runtime: they send nothing, and make up the latencies of collectives.

An all-reduce between n ranks takes 2(n-1) messages of 50 µs, and moves bytes at 1 GB/s; a rank
computes half as fast meanwhile. So fits and formulas are exact. Must not know who measures.
"""

from __future__ import annotations

from itertools import count

from bricks.backends.ranks import CollectiveTimes

LATENCY_S, BYTES_PER_S, UNIT_S, SLOWDOWN = 50e-6, 1e9, 4e-4, 2.0

# Messages that follow each other, for each rank but one; each holds a rank's part of the tensor.
_FACTORS = {"all_reduce": 2.0, "broadcast": 1.0, "all_gather": 1.0, "reduce_scatter": 1.0}
# The relative deviations of samples, over and over.
PATTERN = (0.0, 0.002, -0.002, 0.004, -0.004)


class FakeCollectives:
    """A rank that knows the number of ranks, and nothing else of them."""

    def __init__(self) -> None:
        self._ranks = 1
        self._runs = count()

    def open_store(self, address: str, timeout_s: float) -> int:
        """A port that nothing listens on."""
        return 1

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Keep the number of ranks."""
        self._ranks = ranks

    def leave(self) -> None:
        """Do nothing."""

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Latencies by formula, which vary by a fixed pattern."""
        messages = _FACTORS[operation] * (self._ranks - 1)
        seconds = messages * (LATENCY_S + num_bytes / self._ranks / BYTES_PER_S)
        factors = [1 + PATTERN[next(self._runs) % len(PATTERN)] for _ in range(passes)]
        if not computing:
            return CollectiveTimes(tuple(seconds * factor for factor in factors))
        return CollectiveTimes(
            tuple(seconds * SLOWDOWN * factor for factor in factors),
            before_s=tuple(UNIT_S * factor for factor in factors),
            during_s=tuple(UNIT_S * SLOWDOWN * factor for factor in factors),
        )
