"""How much steps vary from one time to the next, and how long ranks wait for the slowest for it.

All ranks of a synchronous step wait for each other, so it takes as long as the slowest of as many
solo steps. How much these vary is told by the samples of their bricks. Must not know what ranks
send to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from bricks.samples.measurement import Failure, Measurement
from bricks.samples.statistics import pooled_variance
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class Unevenness:
    """Standard deviations of a step in seconds.

    ``apart_s`` if what disturbs one brick disturbs no other, ``together_s`` if it disturbs all of
    them at once. The truth is between both.
    """

    apart_s: float
    together_s: float

    @property
    def deviation_s(self) -> Interval:
        """The deviation, at most that of bricks that are disturbed together."""
        return Interval(self.apart_s, self.apart_s, self.together_s)

    def times(self, ratio: float) -> Unevenness:
        """That of a rank that takes ``ratio`` times as long."""
        return Unevenness(ratio * self.apart_s, ratio * self.together_s)

    def repeated(self, batches: int) -> Unevenness:
        """That of so many steps that follow one another."""
        return Unevenness(math.sqrt(batches) * self.apart_s, batches * self.together_s)


EVEN = Unevenness(0.0, 0.0)


def unevenness(
    counts: Mapping[str, int], results: Mapping[str, Measurement | Failure]
) -> Unevenness:
    """That of a step with so many occurrences of each brick, from those that were measured.

    Samples of one round count, since the speed of a host drifts from round to round.
    """
    measured = [(counts[key], results[key]) for key in counts if key in results]
    squares = [
        (count, _square(found)) for count, found in measured if isinstance(found, Measurement)
    ]
    apart = sum(count * square for count, square in squares)
    return Unevenness(math.sqrt(apart), sum(count * math.sqrt(square) for count, square in squares))


def _square(found: Measurement) -> float:
    """The variance between samples that follow one another."""
    return pooled_variance(taken.host_s for taken in found.rounds)


def slowest(ranks: int) -> float:
    """By how many standard deviations the slowest of ``ranks`` steps is slower than the mean.

    As if deviations were normal; after Blom, *Statistical estimates and transformed
    beta-variables*, 1958.
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
