"""Conditions of a host at a moment: the latencies of a few kernels of the runtime itself.

A host's speed changes with the work on sibling threads, on other cores and on the memory that they
share, and nothing in the system counts that. Reference kernels, which are the same work at all
times, take so much longer as other work of their kind does. Latencies of different moments are
comparable once they are corrected by the change of these kernels. Must not know the kernels' work,
nor what is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The reference kernels, in the order of all vectors: arithmetic on values in the caches of a core,
# arithmetic on weights read from memory, reading and writing memory, calls of tiny operators, and
# small layers whose values the threads exchange.
KERNELS = ("convolution", "product", "stream", "calls", "exchange")

# The work of each, which never changes: channels and rows of pixels of a convolution with 3 x 3
# taps; rows, terms and columns of a product; the shape of a value that is added to itself; tiny
# nodes in a row; layers, rows and width of small layers.
CONVOLUTION = 64, 28
PRODUCT = 48, 768, 1536
STREAM = 512, 56, 56
CALLS = 32
EXCHANGE = 16, 32, 128

# The place of the kernel of exchange: all that rounds of earlier versions know of their conditions.
_EXCHANGE = KERNELS.index("exchange")


@dataclass(frozen=True, slots=True)
class HostConditions:
    """Latencies in seconds of ``KERNELS``, in their order; None: that kernel was not timed.

    ``taken_s`` is the Unix time at which they were timed; None if unknown.
    """

    kernels_s: tuple[float | None, ...]
    taken_s: int | None = None

    @classmethod
    def of_exchange(cls, latency_s: float) -> HostConditions:
        """Conditions of which only the kernel of exchanging threads is known."""
        return cls(tuple(latency_s if n == _EXCHANGE else None for n in range(len(KERNELS))))

    @classmethod
    def of(cls, latency_s: Mapping[str, float], taken_s: int | None = None) -> HostConditions:
        """Conditions from latencies by name of the kernel."""
        return cls(tuple(latency_s.get(name) for name in KERNELS), taken_s)

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> HostConditions:
        """The inverse of :meth:`to_json`; ValueError for numbers that are no latencies."""
        taken_s, *kernels_s = data
        if len(kernels_s) != len(KERNELS) or not all(map(_is_latency, kernels_s)):
            raise ValueError(f"{data!r} are no latencies of reference kernels")
        if taken_s is not None and not (type(taken_s) is int and taken_s >= 0):
            raise ValueError(f"{taken_s!r} is no time")
        return cls(tuple(kernels_s), taken_s)

    def to_json(self) -> list[Any]:
        """The time, then the latencies, in a list."""
        return [self.taken_s, *self.kernels_s]

    @property
    def by_kernel(self) -> dict[str, float]:
        """The latencies of timed kernels in seconds, by name."""
        pairs = zip(KERNELS, self.kernels_s, strict=True)
        return {name: latency_s for name, latency_s in pairs if latency_s is not None}

    def rounded(self, digits: int) -> HostConditions:
        """These conditions with ``digits`` significant digits."""
        short = (None if s is None else float(f"{s:.{digits}g}") for s in self.kernels_s)
        return HostConditions(tuple(short), self.taken_s)

    def changes_to(self, other: HostConditions) -> tuple[float, ...]:
        """The logarithm of the change of each kernel; 0 where one of the two does not know it."""
        pairs = zip(self.kernels_s, other.kernels_s, strict=True)
        return tuple(
            0.0 if before is None or after is None else math.log(after / before)
            for before, after in pairs
        )


def mean_conditions(
    every: Iterable[HostConditions | None], weights: Iterable[float] | None = None
) -> HostConditions | None:
    """The geometric mean of each kernel over all conditions that know it; None without any.

    Each counts by its weight. The mean has the time of the last.
    """
    pairs = zip(every, weights, strict=True) if weights is not None else ((of, 1.0) for of in every)
    known = [(of, weight) for of, weight in pairs if of is not None]
    if len(known) <= 1:  # as it is, and not rounded anew by each cache that it comes to
        return known[0][0] if known else None
    columns = zip(*(of.kernels_s for of, _ in known), strict=True)
    times = [of.taken_s for of, _ in known if of.taken_s is not None]
    of_each = [weight for _, weight in known]
    means = tuple(_geometric_mean(column, of_each) for column in columns)
    return HostConditions(means, max(times, default=None))


def _geometric_mean(latencies_s: Iterable[float | None], weights: Iterable[float]) -> float | None:
    logs = [
        (w * math.log(s), w) for s, w in zip(latencies_s, weights, strict=True) if s is not None
    ]
    return math.exp(sum(log for log, _ in logs) / sum(w for _, w in logs)) if logs else None


def _is_latency(value: object) -> bool:
    if value is None:
        return True
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known and math.isfinite(value) and value > 0  # type: ignore[operator, arg-type]  # known
