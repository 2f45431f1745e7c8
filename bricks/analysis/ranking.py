"""The order of quantities that are known by intervals, such as latencies, and how sure it is.

Predicted models, or the settings of each, are ordered by it. Must not know where quantities come
from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING

from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
    from bricks.units.interval import Interval

# An order is decided from this probability on.
DECIDED = 0.95

_NORMAL = NormalDist()

# Standard deviations between two quantities whose order is decided.
_DECIDED_DEVIATIONS = _NORMAL.inv_cdf(DECIDED)

LATENCY, SAMPLE = "latency_s", "sample_s"

# Models in one setting share the errors of how fast their host will be.
COMPARABLE = "comparable_s"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of some quantities, the least first; at least one.

    ``order`` are their positions, ``sure`` is the probability that the first is the least, and
    ``rivals`` are the positions of those that may be less than it: their order is not decided.
    ``decided_share`` is the share of all pairs whose order is decided; 1 without pairs.
    """

    order: tuple[int, ...]
    sure: float
    rivals: tuple[int, ...]
    decided_share: float

    @property
    def first(self) -> int:
        """The position of the least quantity."""
        return self.order[0]

    @property
    def decided(self) -> bool:
        """Whether the first is the least with :data:`DECIDED` probability."""
        return self.sure >= DECIDED


def ranked(quantities: Sequence[Interval]) -> Ranking:
    """The ranking of at least one quantity."""
    order = sorted(range(len(quantities)), key=lambda n: quantities[n].value)
    first, others = quantities[order[0]], order[1:]
    greater = {n: longer(quantities[n], first) for n in others}
    sure = math.prod(greater.values())
    rivals = tuple(n for n in others if greater[n] < DECIDED)
    return Ranking(tuple(order), sure, rivals, _decided_share([quantities[n] for n in order]))


def longer(one: Interval, other: Interval) -> float:
    """The probability that ``one`` is greater than the ``other``.

    Intervals are treated as the middle 95 % of independent log-normal distributions, with a
    separate width on each side, of which those that face each other count.
    """
    gap = _log_ratio(other.value, one.value)
    if gap >= 0:
        ends = (_log_ratio(one.high, one.value), _log_ratio(other.value, other.low))
    else:
        ends = (_log_ratio(one.value, one.low), _log_ratio(other.high, other.value))
    deviation = math.hypot(*ends) / NORMAL_95
    if math.isinf(deviation):  # an interval that reaches zero has no log width
        return 0.5
    if deviation == 0.0:
        return 0.5 if gap == 0 else float(gap < 0)
    return 1.0 - _NORMAL.cdf(gap / deviation)


def _decided_share(ascending: Sequence[Interval]) -> float:
    """The share of pairs of quantities, the least first, whose order is decided: see `longer`."""
    pairs = math.comb(len(ascending), 2)
    if not pairs:
        return 1.0
    import numpy as np  # a few quantities, as most questions have, need none

    logs = np.array([_log_ratio(quantity.value, ascending[0].value) for quantity in ascending])
    below = np.array([_log_ratio(quantity.value, quantity.low) for quantity in ascending])
    above = np.array([_log_ratio(quantity.high, quantity.value) for quantity in ascending])
    if not np.isfinite(logs).all():  # a quantity of zero
        return sum(longer(b, a) >= DECIDED for a, b in combinations(ascending, 2)) / pairs
    decided = 0
    for n in range(len(ascending) - 1):
        gaps, deviations = logs[n + 1 :] - logs[n], np.hypot(below[n + 1 :], above[n]) / NORMAL_95
        decided += int(((gaps >= _DECIDED_DEVIATIONS * deviations) & (gaps > 0)).sum())
    return decided / pairs


def _log_ratio(greater: float, less: float) -> float:
    """The logarithm of a ratio; infinite where one quantity may be zero."""
    if greater <= 0 or less <= 0:
        return math.inf
    return math.log(greater / less)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedOrder:
    """The order of some predictions by a ``quantity``, the least first.

    ``model`` is the model whose settings are compared, ``batch`` the batch that they share; None
    where models are compared, or batches differ. ``order`` has positions among all predictions.
    ``sure`` is the probability that the first is the least; ``decided_share`` the share of all
    pairs whose order is decided.
    """

    model: str | None
    batch: int | None
    quantity: str
    order: tuple[int, ...]
    sure: float
    decided_share: float


def predicted_orders(of: ModelPredictions) -> list[PredictedOrder]:
    """The orders that an answer about several models, or settings of them, is made from."""
    known = [n for n, model in enumerate(of.models) if model.interval is not None]
    if not of.dimensions:
        return [_order(of.models, known, LATENCY, among=COMPARABLE)] if len(known) > 1 else []
    orders = []
    for name in dict.fromkeys(m.model for m in of.models):
        cells = [n for n in known if of.models[n].model == name]
        if len(cells) < 2:
            continue
        least = min(of.models[n].batch for n in cells)
        equal = [n for n in cells if of.models[n].batch == least]
        orders.append(_order(of.models, equal, LATENCY, name))
        if "batch" in of.dimensions:
            orders.append(_order(of.models, cells, SAMPLE, name))
    return orders


def _order(
    models: Sequence[PredictedModel],
    cells: Sequence[int],
    quantity: str,
    name: str | None = None,
    *,
    among: str | None = None,
) -> PredictedOrder:
    ranking = ranked([getattr(models[n], among or quantity) for n in cells])
    batches = {models[n].batch for n in cells}
    return PredictedOrder(
        model=name,
        batch=batches.pop() if len(batches) == 1 else None,
        quantity=quantity,
        order=tuple(cells[n] for n in ranking.order),
        sure=ranking.sure,
        decided_share=ranking.decided_share,
    )
