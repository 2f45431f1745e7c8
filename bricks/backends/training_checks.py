"""Results of checks of a training, from which its correctness is judged.

Plain data. Must not know the criteria.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GradientDeviation:
    """The deviation of a parameter's gradient from finite differences.

    ``deviation`` is the largest over all directions, relative to the derivative (or its usual size
    along a random direction, if larger). ``resolution`` is the largest deviation that rounding
    alone may cause. Both are None without a gradient, or where gradient and differences are zero.
    """

    name: str
    deviation: float | None
    resolution: float | None


@dataclass(frozen=True, slots=True)
class GradientDeviations:
    """The gradients of all ``parameters``, or the ``reason`` why none was compared."""

    parameters: tuple[GradientDeviation, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The ``points`` (8 numbers each) of an optimiser after each step on an ``objective``.

    ``options`` are those of the optimiser; ``scale`` is the factor of the function.
    """

    options: Mapping[str, Any]
    objective: str
    scale: float
    points: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class OptimizerTrajectories:
    """The trajectories of an optimiser, for each group of distinct options.

    ``optimizer`` is the name of its class, ``bases`` are the names of its base classes in the
    runtime, the nearest first.
    """

    optimizer: str
    bases: tuple[str, ...]
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class ItemOrders:
    """The numbers of the items of each epoch in order: equal numbers are equal items.

    ``data_set`` are the numbers of all existing items; None if unknown. ``reason`` is why there are
    no orders.
    """

    orders: tuple[tuple[int, ...], ...] = ()
    data_set: tuple[int, ...] | None = None
    reason: str | None = None
