"""Decides which of many changes are beyond noise.

A change is a ratio of two latencies that were taken in two sessions. The difference between two
sessions without any change is known from repeated sessions (research/differences.md); the
remaining difference is judged together with all others in the same comparison. Must not know
bricks.

Of hundreds of bricks some always look slower. The procedure of Benjamini and Hochberg (1995) limits
the share of false discoveries to 5 %: if nothing has changed at all, 5 % of runs report any change,
as with Holm's procedure; if a runtime has changed many kernels, it still finds most of them, and
Holm's does not. Positive dependence, such as a drift of the machine common to all bricks, does not
invalidate it (Benjamini and Yekutieli 2001). Intervals are widened to match (the same, 2005): a
change is beyond noise if, and only if, its interval excludes 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bricks.units.interval import Interval

# The false discovery rate: the share of reported changes that may be none.
FALSE_DISCOVERY_RATE = 0.05

# The largest half-width of an interval, reached with single rounds: a factor of a thousand.
_WIDEST = math.log(1e3)

# The difference between sessions beyond the spread of rounds, as a relative standard deviation: of
# each brick by itself (because of its memory's location, say), and of all together (because of the
# machine's clock or its neighbours). Round numbers from 40 sessions of 9 models with 1 and 2
# threads, on a virtual machine whose host was shared: at some hours all bricks together drifted by
# 1 %, at others by 2.5 % (1 thread) or 5 % (a thread for each core). research/differences.md says
# how many changes were found in other sessions, where there are none.
BRICK_DRIFT = 0.0125
MACHINE_DRIFT = 0.02


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ``interval`` of new over old latency, and whether it is ``beyond_noise``."""

    interval: Interval
    beyond_noise: bool

    @property
    def slower(self) -> bool:
        """Slower, beyond noise."""
        return self.beyond_noise and self.interval.value > 1

    @property
    def faster(self) -> bool:
        """Faster, beyond noise."""
        return self.beyond_noise and self.interval.value < 1


@dataclass(frozen=True, slots=True)
class LogRatio:
    """The logarithm of a ratio, its standard deviation (never 0), and its degrees of freedom.

    ``degrees_of_freedom`` is that of a Student distribution: the smaller, the more often noise is
    many deviations; infinite for a normal one.
    """

    log_ratio: float
    deviation: float
    degrees_of_freedom: float = math.inf


def degrees_of_freedom(rounds: int) -> float:
    """Degrees of freedom of a brick with this many rounds, on the target with fewer.

    With one round, 1 % of changes between two sessions are beyond 6 deviations, and 0.1 % beyond
    14: a Student distribution with 3. Each further round makes these rarer.
    """
    return 1.0 + 2.0 * rounds


def judge(changes: Sequence[LogRatio]) -> list[Ratio]:
    """The ratio of each of ``changes`` with its interval, corrected for multiple comparisons."""
    if not changes:
        return []
    from scipy.special import stdtr  # here: importing it takes as long as all the rest

    p_values = [
        2.0 * float(stdtr(c.degrees_of_freedom, -abs(c.log_ratio) / c.deviation)) for c in changes
    ]
    level = FALSE_DISCOVERY_RATE * max(1, _discovery_count(p_values)) / len(changes)
    return [
        _ratio(change, level, beyond_noise=p_value <= level)
        for change, p_value in zip(changes, p_values, strict=True)
    ]


def _discovery_count(p_values: Sequence[float]) -> int:
    """Discoveries: the largest n whose n-th p-value is at most n shares of the rate."""
    ordered = sorted(p_values)
    return max(
        (
            n
            for n, p_value in enumerate(ordered, 1)
            if p_value <= FALSE_DISCOVERY_RATE * n / len(ordered)
        ),
        default=0,
    )


def _ratio(change: LogRatio, level: float, *, beyond_noise: bool) -> Ratio:
    from scipy.special import stdtrit

    reach = -float(stdtrit(change.degrees_of_freedom, level / 2)) * change.deviation
    if not beyond_noise:
        reach = min(reach, max(_WIDEST, abs(change.log_ratio)))
    low, high = (math.exp(change.log_ratio + side * reach) for side in (-1, 1))
    return Ratio(Interval(math.exp(change.log_ratio), low, high), beyond_noise)
