"""Cost model of measuring bricks, learned from past measurements on the same target.

The seconds of benchmarking grow with a fixed part for each brick (loading it), with its operations,
and with the bytes that it reads and writes. A target without measurements has typical costs. Must
not know how measuring works, nor its purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.samples.statistics import median
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# The least number of measured bricks from which a cost model is learned.
MIN = 10

# The cost of measuring a brick: seconds until it and its warm-up prefix are loaded; seconds for
# each byte of weights, which are copied and packed into newly allocated memory; the minimum number
# of runs; and the number of further runs for a brick that is a whole model. Fitted on some 500
# bricks of the zoo; only the proportions matter.
_LOAD_S, _LOAD_S_PER_BYTE, _RUNS, _MORE_RUNS = 5e-3, 3e-9, 15.0, 45.0

_PARTS = 10
_STEPS = 8
_INTERVAL = (0.025, 0.975)


def typical_cost_s(
    weight_bytes: np.ndarray, latency_s: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """Return the approximate seconds of measuring each brick, from its expected latency in seconds.

    ``share`` is its largest share of any model: bricks with a larger share are sampled more often.
    """
    seconds: np.ndarray = _LOAD_S + _LOAD_S_PER_BYTE * weight_bytes
    return seconds + latency_s * (_RUNS + _MORE_RUNS * share)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of benchmarking as a sum over bricks; see ``fit``.

    ``factors`` are for bricks whose operations are known, ``blind_factors`` for the others.
    ``outcomes`` are pairs (seconds, estimated seconds) of all measured bricks in the order of
    measuring; each estimate is from bricks measured at other times (cross-validation).
    """

    factors: tuple[float, ...]
    blind_factors: tuple[float, ...]
    outcomes: tuple[tuple[float, float], ...]

    def brick_s(self, brick: Brick) -> float:
        """Return the predicted seconds of measuring ``brick``."""
        factors = self.blind_factors if brick.flops is None else self.factors
        return float(np.dot(factors, _features(brick)))

    def cost_s(self, bricks: Iterable[Brick]) -> Interval:
        """Return the predicted seconds of measuring ``bricks``.

        The interval covers 95 % of the past groups of this many bricks measured one after another
        (groups of a fifth of all bricks, if these are fewer). New bricks may resemble measured
        bricks less than these resemble each other: on four caches of zoo models, with 8 to 60
        bricks at a time, the interval contained the seconds four times in five.
        """
        costs_s = [self.brick_s(brick) for brick in bricks]
        total_s = sum(costs_s)
        if not costs_s:
            return Interval.exact(0.0)
        low, high = self._ratios(len(costs_s))
        return Interval(1.0, min(1.0, low), max(1.0, high)).scaled(total_s)

    @property
    def median_abs_error(self) -> float:
        """Median of ``|estimate / seconds - 1|`` over ten parts of the measured bricks."""
        parts = np.array_split(np.array(self.outcomes), min(_PARTS, len(self.outcomes)))
        sums = [part.sum(axis=0) for part in parts]
        return median([abs(float(estimate_s / real_s) - 1) for real_s, estimate_s in sums])

    def _ratios(self, count: int) -> tuple[float, float]:
        width = max(1, min(count, len(self.outcomes) // 5))
        run = np.ones(width)
        real_s, estimate_s = (
            np.convolve(column, run, "valid") for column in np.array(self.outcomes).T
        )
        low, high = np.quantile(real_s / estimate_s, _INTERVAL)
        return float(low), float(high)


def fit(measured: Sequence[tuple[Brick, float]]) -> CostModel | None:
    """Learn from bricks and the seconds that measuring them took, in the order of measuring.

    None if there are fewer than ``MIN``. The error is found by cross-validation: each tenth of the
    bricks, measured consecutively (so about the bricks of one model), is estimated from the rest.
    """
    costs = [(brick, wall_s) for brick, wall_s in measured if wall_s > 0]
    if len(costs) < MIN:
        return None
    outcomes: list[tuple[float, float]] = []
    for part in np.array_split(np.arange(len(costs)), _PARTS):
        begin, end = int(part[0]), int(part[-1]) + 1
        model = _fitted(costs[:begin] + costs[end:])
        outcomes += [(wall_s, model.brick_s(brick)) for brick, wall_s in costs[begin:end]]
    model = _fitted(costs)
    return CostModel(model.factors, model.blind_factors, tuple(outcomes))


def _fitted(costs: Sequence[tuple[Brick, float]]) -> CostModel:
    features = np.array([_features(brick) for brick, _ in costs])
    seconds = np.array([wall_s for _, wall_s in costs])
    has_flops = np.array([brick.flops is not None for brick, _ in costs])
    blind = features * (1.0, 0.0, 1.0, 1.0)
    factors = _factors(features[has_flops], seconds[has_flops]) if has_flops.any() else (0.0,) * 4
    return CostModel(factors, _factors(blind, seconds), ())


def _factors(features: np.ndarray, seconds: np.ndarray) -> tuple[float, ...]:
    """Nonnegative least squares, then scaled so that the sum is right.

    The cost of a brick varies by about its square root, as sums do, and is weighted accordingly.
    Each brick costs at least a tenth of the cheapest measured one.
    """
    min_s = 0.1 * seconds.min()
    estimates_s = np.full(len(seconds), seconds.mean())
    for _ in range(_STEPS):
        weights = 1 / np.sqrt(estimates_s)
        factors = _least_squares(features * weights[:, None], (seconds - min_s) * weights)
        factors[0] += min_s
        estimates_s = features @ factors
    return tuple(map(float, factors * seconds.sum() / estimates_s.sum()))


def _least_squares(features: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Factors of the columns; columns whose factor would be negative are dropped."""
    factors = np.zeros(features.shape[1])
    scale = np.linalg.norm(features, axis=0)
    columns = np.flatnonzero(scale)
    while len(columns):
        solution = np.linalg.lstsq(features[:, columns] / scale[columns], seconds, rcond=None)[0]
        if (solution >= 0).all():
            factors[columns] = solution / scale[columns]
            break
        columns = columns[solution >= 0]
    return factors


def _features(brick: Brick) -> tuple[float, ...]:
    """One for the brick itself, operations, bytes of inputs and outputs, bytes of weights."""
    weights = brick.numeric_weight_bytes
    return 1.0, float(brick.flops or 0), float(brick.bytes_moved - weights), float(weights)
