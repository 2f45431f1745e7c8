"""Which of many changes are beyond noise.

A change is a ratio of two latencies that were taken in two sessions. What two sessions differ by
although nothing has changed is known from repeating them (``benchmarks/repeats.py``); what remains
is judged together with all others that are judged at the same time. Knows nothing of bricks.

Of hundreds of bricks some always look slower. The procedure of Benjamini and Hochberg (1995) keeps
the share of wrong ones among those that are named at 5 %: where nothing has changed at all, 5 % of
runs name anything, as with Holm's; where a runtime has changed many kernels, it still finds most of
them, and Holm's does not. Positive dependence, such as a drift of the machine that all have in
common, does no harm to it (Benjamini and Yekutieli 2001). Intervals are widened to match (the same,
2005): a change is beyond noise if, and only if, its interval leaves out 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Of the changes that are told to be beyond noise, so many may be none.
WRONG = 0.05

# What no interval can say more than, for those of a single round: a factor of a thousand.
_WIDEST = math.log(1e3)

# By how much a latency differs from one session to the next, relative to it, as a standard
# deviation and beside what the spread of its rounds shows: every brick by itself (where its memory
# came to lie, say), and all together (the machine's clock, its neighbours). Round numbers from 40
# sessions of 9 models with 1 and 2 threads, on a virtual machine whose host was shared: at some
# hours all together drifted by 1 %, at others by 2.5 % (1 thread) or 5 % (a thread for each core).
# benchmarks/repeats.py takes other sessions, and tells how many changes are found where there are
# none.
BRICK_DRIFT = 0.0125
MACHINE_DRIFT = 0.02


@dataclass(frozen=True, slots=True)
class Ratio:
    """New over old latency, with its interval, and whether that is ``beyond_noise``."""

    ratio: float
    low: float
    high: float
    beyond_noise: bool

    @property
    def slower(self) -> bool:
        """Slower, and more than noise explains."""
        return self.beyond_noise and self.ratio > 1

    @property
    def faster(self) -> bool:
        """Faster, and more than noise explains."""
        return self.beyond_noise and self.ratio < 1


@dataclass(frozen=True, slots=True)
class Change:
    """The logarithm of a ratio, its standard deviation (never 0), and how well that is known.

    ``degrees_of_freedom`` is that of a Student distribution: the smaller, the more often noise is
    many deviations; infinite for a normal one.
    """

    log_ratio: float
    deviation: float
    degrees_of_freedom: float = math.inf


def degrees_of_freedom(rounds: int) -> float:
    """Degrees of freedom of a brick that was sampled in so many rounds, on the side with fewer.

    Of one round, 1 % of changes between two sessions are beyond 6 deviations, and 0.1 % beyond 14:
    a Student distribution with 3. Each further round makes such ones rarer.
    """
    return 1.0 + 2.0 * rounds


def judged(changes: Sequence[Change]) -> list[Ratio]:
    """Each of ``changes`` with its interval, judged together."""
    if not changes:
        return []
    from scipy.special import stdtr  # here: importing it takes as long as all the rest

    chances = [
        2.0 * float(stdtr(c.degrees_of_freedom, -abs(c.log_ratio) / c.deviation)) for c in changes
    ]
    level = WRONG * max(1, _found(chances)) / len(changes)
    return [
        _ratio(change, level, beyond_noise=chance <= level)
        for change, chance in zip(changes, chances, strict=True)
    ]


def _found(chances: Sequence[float]) -> int:
    """How many are found: the most for which the last is below its share of what may be wrong."""
    ordered = sorted(chances)
    return max(
        (n for n, chance in enumerate(ordered, 1) if chance <= WRONG * n / len(ordered)), default=0
    )


def _ratio(change: Change, level: float, *, beyond_noise: bool) -> Ratio:
    from scipy.special import stdtrit

    reach = -float(stdtrit(change.degrees_of_freedom, level / 2)) * change.deviation
    if not beyond_noise:
        reach = min(reach, max(_WIDEST, abs(change.log_ratio)))
    low, high = (math.exp(change.log_ratio + side * reach) for side in (-1, 1))
    return Ratio(math.exp(change.log_ratio), low, high, beyond_noise)
