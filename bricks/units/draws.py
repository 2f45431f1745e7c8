"""Draws of uncertain quantities, and the interval of a result that is computed from them.

For computations that are no formula of their quantities, such as a simulation: it runs once with
all quantities at their values, and again for draws. Must not know what is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np

from bricks.units.interval import Interval

T = TypeVar("T")
U = TypeVar("U")

# Draws are the middles of as many equally likely parts of the distribution: the outermost two of
# twenty are its quantiles of 2.5 % and 97.5 %.
_COUNT = 20


@dataclass(frozen=True, slots=True)
class Draw:
    """How far quantities lie from their values, in standard deviations of a normal distribution.

    All quantities have the deviation ``common``; each may have an independent one, which stands in
    ``own`` by its number. Without ``own``, all errors are common.
    """

    common: float = 0.0
    own: tuple[float, ...] = ()

    def of(self, quantity: Interval, number: int = 0, own_share: float = 0.0) -> float:
        """The drawn ``quantity``; ``own_share`` of its squared error is independent of others."""
        if not self.own:
            return quantity.deviated(self.common)
        common, own = math.sqrt(1.0 - own_share), math.sqrt(own_share)
        return quantity.deviated(common * self.common + own * self.own[number])


VALUE = Draw()


@dataclass(frozen=True, slots=True)
class Drawn(Generic[T]):
    """A result with all quantities at their ``value``, and the results of ``draws``."""

    value: T
    draws: tuple[T, ...]

    def map(self, function: Callable[[T], U]) -> Drawn[U]:
        """Apply ``function`` to each result."""
        return Drawn(function(self.value), tuple(map(function, self.draws)))


def stratified(quantities: int, seed: int = 0) -> list[Draw]:
    """Draws of so many quantities, in ascending order of the common deviation."""
    deviations = [NormalDist().inv_cdf((rank + 0.5) / _COUNT) for rank in range(_COUNT)]
    if quantities == 1:
        return [*map(Draw, deviations)]
    rng = np.random.default_rng(seed)
    own = zip(*(rng.permutation(deviations).tolist() for _ in range(quantities)), strict=True)
    return [*map(Draw, deviations, own)]


def outermost(draws: Sequence[Draw], quantities: Callable[[Draw], Sequence[float]]) -> Drawn[Draw]:
    """The ``draws`` between which all others lie, in whatever rises with every quantity.

    Left out is a draw that has one above it and one below it in all ``quantities``, and one that
    is equal to another: a result that rises with each quantity is not extreme there.
    """
    distinct = {tuple(quantities(draw)): draw for draw in draws}

    def bounded(one: tuple[float, ...]) -> bool:
        others = [other for other in distinct if other != one]
        return any(_below(of, one) for of in others) and any(_below(one, of) for of in others)

    return Drawn(VALUE, tuple(draw for one, draw in distinct.items() if not bounded(one)))


def _below(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(less <= more for less, more in zip(one, other, strict=True))


# Draws of quantities whose errors are all common.
_IN_COMMON = stratified(1)
IN_COMMON = Drawn(VALUE, (_IN_COMMON[0], _IN_COMMON[-1]))


def interval_of(results: Drawn[float]) -> Interval:
    """The interval from the smallest to the largest result, of draws in any order."""
    every = (results.value, *results.draws)
    return Interval(results.value, min(every), max(every))
