"""Roofline of calls on a GPU: a floor, operations and bytes at the published peaks of a card.

Factors are shares of the peaks, fitted to measured calls in ever smaller groups: all, those in a
state of the cache, those of an operator, and those with its tags. Each group is the prior of the
next. Must not know how residuals are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.factors import fitted_factors, summed_s
from bricks.predict.kernels.tiles import products_s

if TYPE_CHECKING:
    from bricks.predict.kernels.work import KernelFeatures
    from bricks.system.cards import Card

Array = np.ndarray

# Factors of the parts before anything is measured, as logarithms: a floor of 2 µs, and two thirds
# of the peaks.
_START: Array = np.log([2.0, 1.4, 1.3, 1.3])
_FLOOR_S = 1e-6
# The prior width of factors: of all calls, of a state, of an operator, and of one with its tags.
_FREEDOMS = (2.0, 1.0, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class StatedCall:
    """The features of a call, and the state of the cache when it runs (``walk``)."""

    features: KernelFeatures
    state: str

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that it is in, the smallest last."""
        operator = f"{self.state} {self.features.operator}"
        return "", self.state, operator, f"{operator} {' '.join(self.features.work.tags)}"


@dataclass(frozen=True, slots=True)
class DeviceRoofline:
    """Log-factors of the parts, by the name of a group of calls; the empty name is of all."""

    by_group: Mapping[str, Array]

    @classmethod
    def fit(cls, calls: Sequence[StatedCall], device_s: Array, card: Card) -> DeviceRoofline:
        """Fit to calls that took ``device_s`` on ``card``."""
        parts, known = card_parts(calls, card), cls({})
        for depth, freedom in enumerate(_FREEDOMS):
            fitted = {
                group: fitted_factors(parts[rows], device_s[rows], prior, freedom)
                for group, (rows, prior) in _members(calls, depth, known).items()
            }
            known = cls({**known.by_group, **fitted})
        return known

    def factors(self, call: StatedCall) -> Array:
        """The factors of the smallest known group of a call."""
        known = (self.by_group[name] for name in reversed(call.groups) if name in self.by_group)
        return next(known, _START)

    def seconds(self, calls: Sequence[StatedCall], card: Card) -> Array:
        """Return the seconds of each call on ``card``, by its published peaks."""
        factors = np.array([self.factors(call) for call in calls])
        return summed_s(card_parts(calls, card), factors.reshape(-1, len(_START)))


def _members(
    calls: Sequence[StatedCall], depth: int, known: DeviceRoofline
) -> dict[str, tuple[list[int], Array]]:
    """The calls of each group of one depth, and the factors of the group around it."""
    rows: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        rows.setdefault(call.groups[depth], []).append(at)
    return {name: (own, known.factors(calls[own[0]])) for name, own in sorted(rows.items())}


def card_parts(calls: Sequence[StatedCall], card: Card) -> Array:
    """The parts of each call in seconds at the card's peaks: floor, operations, read, written."""
    bandwidth, works = card.bandwidth_bytes_per_s, [call.features.work for call in calls]
    moved = np.array([(work.read_bytes, work.written_bytes) for work in works]).reshape(-1, 2)
    floors = _FLOOR_S * np.array([work.kernels for work in works], float)
    return np.column_stack([floors, products_s(works, card), moved / bandwidth])
