"""What measuring bricks costs, learned from what measuring others has cost on the same target.

Seconds of benchmarking grow with a fixed part of each brick (loading it), with its operations, and
with the bytes that it reads and writes. And, as long as nothing is known of a target, what it
usually costs. It must not know how measuring works, nor what for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bricks.decompose.plan import Brick
from bricks.samples.statistics import median

# Fewer measured bricks than this say too little of others.
MIN = 10

# What measuring a brick takes: seconds until it is loaded, with those that lead in, and more for
# each byte of weights, which are copied and packed into memory that is filled for the first time;
# how often its latency is spent at least, and how often more where it is all of a model. As found
# of some 500 bricks of the zoo; the proportions are what matters.
_LOAD_S, _LOAD_S_PER_BYTE, _RUNS, _MORE_RUNS = 5e-3, 3e-9, 15.0, 45.0

_PARTS = 10
_STEPS = 8
_INTERVAL = (0.025, 0.975)


def usual_s(weight_bytes: np.ndarray, latency_s: np.ndarray, share: np.ndarray) -> np.ndarray:
    """About how many seconds measuring each brick takes, by what is believed of its latency.

    ``share`` is that of the model of which it is most: what matters more is sampled more often.
    """
    seconds: np.ndarray = _LOAD_S + _LOAD_S_PER_BYTE * weight_bytes
    return seconds + latency_s * (_RUNS + _MORE_RUNS * share)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of benchmarking, and an interval: see :meth:`CostModel.cost` for what it holds."""

    estimate_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of benchmarking as a sum over bricks; see ``fit``.

    ``factors`` are for bricks whose operations are known, ``blind_factors`` for the others.
    ``outcomes`` are pairs (seconds, estimate) of all measured bricks in the order in which they
    were measured; each was estimated from bricks that were measured at other times.
    """

    factors: tuple[float, ...]
    blind_factors: tuple[float, ...]
    outcomes: tuple[tuple[float, float], ...]

    def brick_s(self, brick: Brick) -> float:
        """The seconds that measuring this brick will take."""
        factors = self.blind_factors if brick.flops is None else self.factors
        return float(np.dot(factors, _features(brick)))

    def cost(self, bricks: Iterable[Brick]) -> Cost:
        """What measuring these will cost.

        The interval is that in which 95 % of the groups of as many bricks came out that were
        measured one after another (of a fifth of all, where that is fewer). What is new may be less
        like them than they are like each other: tried on four caches of zoo models, 8 to 60 bricks
        at a time, it held four times in five.
        """
        each_s = [self.brick_s(brick) for brick in bricks]
        total_s = sum(each_s)
        if not each_s:
            return Cost(0.0, 0.0, 0.0)
        low, high = self._ratios(len(each_s))
        return Cost(total_s, total_s * min(1.0, low), total_s * max(1.0, high))

    @property
    def median_abs_error(self) -> float:
        """Median of ``|estimate / seconds - 1|`` over ten parts of what was measured."""
        parts = np.array_split(np.array(self.outcomes), min(_PARTS, len(self.outcomes)))
        sums = [part.sum(axis=0) for part in parts]
        return median([abs(float(guess_s / real_s) - 1) for real_s, guess_s in sums])

    def _ratios(self, count: int) -> tuple[float, float]:
        width = max(1, min(count, len(self.outcomes) // 5))
        run = np.ones(width)
        real_s, guess_s = (np.convolve(each, run, "valid") for each in np.array(self.outcomes).T)
        low, high = np.quantile(real_s / guess_s, _INTERVAL)
        return float(low), float(high)


def fit(measured: Sequence[tuple[Brick, float]]) -> CostModel | None:
    """Learn from bricks and the seconds that measuring them took, in the order of measuring.

    None if they are fewer than ``MIN``. How well it does is found by cross-validation: a tenth
    that was measured in one go (so about the bricks of one model) is estimated from the rest.
    """
    costs = [(brick, wall_s) for brick, wall_s in measured if wall_s > 0]
    if len(costs) < MIN:
        return None
    outcomes: list[tuple[float, float]] = []
    for part in np.array_split(np.arange(len(costs)), _PARTS):
        begin, end = int(part[0]), int(part[-1]) + 1
        model = _fitted(costs[:begin] + costs[end:])
        outcomes += [(wall_s, model.brick_s(brick)) for brick, wall_s in costs[begin:end]]
    whole = _fitted(costs)
    return CostModel(whole.factors, whole.blind_factors, tuple(outcomes))


def _fitted(costs: Sequence[tuple[Brick, float]]) -> CostModel:
    features = np.array([_features(brick) for brick, _ in costs])
    seconds = np.array([wall_s for _, wall_s in costs])
    known = np.array([brick.flops is not None for brick, _ in costs])
    blind = features * (1.0, 0.0, 1.0, 1.0)
    factors = _factors(features[known], seconds[known]) if known.any() else (0.0,) * 4
    return CostModel(factors, _factors(blind, seconds), ())


def _factors(features: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """Least squares without negative factors, then scaled so that the sum is right.

    What a brick costs varies by about the root of it, as sums do, so that is how much it counts.
    Each costs something: a tenth of the cheapest that was measured at least.
    """
    min_s = 0.1 * seconds.min()
    expected = np.full(len(seconds), seconds.mean())
    for _ in range(_STEPS):
        weights = 1 / np.sqrt(expected)
        factors = _least_squares(features * weights[:, None], (seconds - min_s) * weights)
        factors[0] += min_s
        expected = features @ factors
    return tuple(map(float, factors * seconds.sum() / expected.sum()))


def _least_squares(features: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Factors of the columns; those that would be negative are left out."""
    factors = np.zeros(features.shape[1])
    scale = np.linalg.norm(features, axis=0)
    columns = np.flatnonzero(scale)
    while len(columns):
        found = np.linalg.lstsq(features[:, columns] / scale[columns], seconds, rcond=None)[0]
        if (found >= 0).all():
            factors[columns] = found / scale[columns]
            break
        columns = columns[found >= 0]
    return factors


def _features(brick: Brick) -> tuple[float, ...]:
    """One for the brick itself, operations, bytes of inputs and outputs, bytes of weights."""
    weights = brick.numeric_weight_bytes
    return 1.0, float(brick.flops or 0), float(brick.bytes_moved - weights), float(weights)
