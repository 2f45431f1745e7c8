"""The conditions of measuring: when to stop, how long a step may take, how much is loaded at once.

They are chosen before a campaign, and hold for all its keys: how many rounds a latency needs, by
its share of a model; limits, with their defaults; the deadline. They must not know which models are
measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bricks.samples.statistics import MIN_RANKED, half_width, median

if TYPE_CHECKING:
    from bricks.samples.measurement import Round

# The relative half-width of the interval of a median; see measure/conditions.
PRECISION = 0.01

# The most seconds that a brick may run; a large model's step may take longer.
TIMEOUT_S = 60.0

# The most seconds for learning a model's graph; see measure/protocol/models.
GRAPH_TIMEOUT_S = 600.0

# The most bricks that are loaded together, and the most bytes of their weights. One model's bricks
# are never divided between batches.
MAX_BRICKS = 2000
MAX_WEIGHT_BYTES = 2 << 30


# Rounds between two checks of the precision, after the minimum of rounds.
_CHECK_EVERY = 4

# Rounds that even the smallest share may get.
_MIN_MAX_ROUNDS = 3

# Rounds beyond the maximum that a key gets if rounds are noisy, at least.
_MIN_EXTRA_ROUNDS = 4

# The standard deviation of a single round, relative to it: one round cannot show that itself.
_SINGLE_DEVIATION = 0.05


@dataclass(frozen=True, slots=True)
class StopRule:
    """When latencies are known well enough: one rule for whole models and for their bricks.

    A model's latency must be known to ± ``precision``, relative to it, and so must the sum of its
    bricks. A brick whose share of the model is s must then be known to ± ``precision`` / sqrt(s),
    since the variances of independent latencies add up.

    A whole latency is sampled in at least ``min_rounds`` and at most ``max_rounds``; a share s of
    it in s times as many, and up to three if need be. If all bricks are as noisy as the whole, so
    many rounds of each give their sum the precision of the whole.

    Steady rounds count. Half as many rounds more than the maximum
    (or four more), steady or noisy, end sampling too. The precision is nominal: an interval that
    ends sampling once it is narrow is narrower than it should be. So it is checked only every few
    rounds. ``passes`` samples are taken in each round, after the worker has
    warmed up. Latencies that stay uncertain are sampled again, at most ``retries`` times.
    """

    precision: float = PRECISION
    min_rounds: int = 8
    max_rounds: int = 24
    passes: int = 2
    retries: int = 3

    def min_rounds_for(self, share: float) -> int:
        """Rounds that a share of a latency needs at least, even if its interval is narrow."""
        return max(1, math.ceil(self.min_rounds * share))

    def max_rounds_for(self, share: float) -> int:
        """Steady rounds that a share gets at most, even if its interval is wide."""
        return min(self.max_rounds, max(_MIN_MAX_ROUNDS, math.ceil(self.max_rounds * share)))

    def given_up(self, rounds: int, share: float) -> bool:
        """Whether this many ``rounds``, steady or noisy, end the sampling of a share."""
        max_rounds = self.max_rounds_for(share)
        return rounds >= max_rounds + max(_MIN_EXTRA_ROUNDS, max_rounds // 2)

    def met(self, medians: Sequence[float], share: float, deviation: float) -> bool:
        """Whether rounds with these ``medians`` are enough for a share of a model's latency.

        ``medians`` are in seconds. ``deviation`` is the standard deviation of rounds of such
        latencies, relative to their median.
        """
        count, min_rounds = len(medians), self.min_rounds_for(share)
        if count >= self.max_rounds_for(share):
            return True
        if count < min_rounds or (count >= MIN_RANKED and (count - min_rounds) % _CHECK_EVERY):
            return False
        if count == 1:
            deviation = max(deviation, _SINGLE_DEVIATION)
        width_s = half_width(medians, deviation)
        return width_s * math.sqrt(share) <= self.precision * median(medians)


class Shares(Protocol):
    """Computes which share of the models each latency has."""

    def of(self, latencies_s: Mapping[str, float]) -> Mapping[str, float]:
        """Shares between 0 and 1 of latencies in seconds, by key."""


class NoShares:
    """Latencies that need as few rounds as the rule allows."""

    def of(self, latencies_s: Mapping[str, float]) -> Mapping[str, float]:
        """A share of 0 for each."""
        return dict.fromkeys(latencies_s, 0.0)


@dataclass(frozen=True, slots=True)
class SamplingGoal:
    """The goal of sampling a walk, which decides how many rounds its keys need.

    ``before`` has the rounds of each key from an interrupted run. ``shares`` computes the share of
    a latency in the models that need it; None: each is a whole latency. Each key gets ``least``
    rounds, even if it needs fewer.
    """

    before: Mapping[str, Sequence[Round]] = field(default_factory=dict)
    shares: Shares | None = None
    least: int = 1


# A goal of walks whose keys are whole latencies, none of them sampled before.
WHOLE_LATENCIES = SamplingGoal()


@dataclass(frozen=True, slots=True)
class Conditions:
    """How to measure.

    ``rule`` says when a latency is known well enough. A step that takes longer than ``timeout_s``
    seconds fails. ``budget_s`` is the time for everything in seconds, from ``budget_began_s``
    of ``time.monotonic()`` on, or else from when measuring begins; None: no limit. With
    ``exclusive``, no two processes of a user on one host time at once.

    With ``again``, known keys get further rounds in addition to those that they have.

    At most ``max_eviction_bytes`` are read in place of the weights that a walk leaves out: to read
    more than the caches hold has no effect. Up to ``max_bricks`` bricks with ``max_weight_bytes``
    of weights are measured in turn: the more there are, the longer is the time over which the
    rounds of each are spread. Fewer bytes suit a host with little memory.

    Kernels on a device are also timed after so many ``displaced_bytes``, as in
    :class:`~bricks.units.sample.Sample`.
    """

    rule: StopRule = field(default_factory=StopRule)
    timeout_s: float = TIMEOUT_S
    budget_s: float | None = None
    budget_began_s: float | None = None
    again: bool = False
    exclusive: bool = True
    max_eviction_bytes: int = 1 << 28
    max_bricks: int = MAX_BRICKS
    max_weight_bytes: int = MAX_WEIGHT_BYTES
    displaced_bytes: Sequence[int] = ()

    @property
    def on_device(self) -> bool:
        """Whether kernels run on a device next to the host."""
        return bool(self.displaced_bytes)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time of the monotonic clock in seconds; None: there is none."""

    at_s: float | None = None

    @classmethod
    def after(cls, budget_s: float | None) -> Deadline:
        """The end of a budget that begins now; None: no limit."""
        return cls(None if budget_s is None else time.monotonic() + budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return math.inf if self.at_s is None else self.at_s - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0


NEVER = Deadline()
