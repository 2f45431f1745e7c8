"""The variation from step to step, and the time that ranks wait for the slowest one.

All ranks of a synchronous step wait for each other, so it takes as long as the slowest solo step.
The variation of solo steps follows from the samples of their bricks. Must not know the messages of
ranks.
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
    """Standard deviations of a step in seconds, as two bounds.

    ``independent_s`` if the noise of bricks is independent, ``correlated_s`` if it is fully
    correlated.
    """

    independent_s: float
    correlated_s: float

    @property
    def deviation_s(self) -> Interval:
        """The standard deviation: independent noise, at most fully correlated noise."""
        return Interval(self.independent_s, self.independent_s, self.correlated_s)

    def times(self, ratio: float) -> Unevenness:
        """The variation of a rank that is ``ratio`` times slower."""
        return Unevenness(ratio * self.independent_s, ratio * self.correlated_s)

    def repeated(self, batches: int) -> Unevenness:
        """The variation of the sum of ``batches`` steps."""
        return Unevenness(math.sqrt(batches) * self.independent_s, batches * self.correlated_s)


EVEN = Unevenness(0.0, 0.0)


def unevenness(
    counts: Mapping[str, int], results: Mapping[str, Measurement | Failure]
) -> Unevenness:
    """The variation of a step with ``counts`` occurrences of each brick, from measured bricks.

    Only variation within rounds counts, since the speed of a host drifts from round to round.
    """
    measured = [(counts[key], results[key]) for key in counts if key in results]
    squares = [
        (count, _square(result)) for count, result in measured if isinstance(result, Measurement)
    ]
    variance = sum(count * square for count, square in squares)
    return Unevenness(
        math.sqrt(variance), sum(count * math.sqrt(square) for count, square in squares)
    )


def _square(measurement: Measurement) -> float:
    """The variance within rounds."""
    return pooled_variance(round_.host_s for round_ in measurement.rounds)


def slowest(ranks: int) -> float:
    """The expected maximum of ``ranks`` standard normal deviations: the slowest rank's.

    As if deviations were normal; after Blom, *Statistical estimates and transformed
    beta-variables*, 1958.
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
