"""What a backend tells of a training, so that others can judge whether it is right.

Plain data. Must not know what is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GradientDeviation:
    """The deviation of a parameter's gradient from finite differences.

    ``deviation`` is the largest over all directions, relative to the derivative (to its usual size
    along a random direction, if that is larger). ``resolution`` is the deviation that rounding
    alone may cause: a smaller one says nothing. Both are None where no gradient is computed, or it
    is zero and so are the differences.
    """

    name: str
    deviation: float | None
    resolution: float | None


@dataclass(frozen=True, slots=True)
class GradientDeviations:
    """The gradients of all ``parameters``, or the ``reason`` why nothing was compared."""

    parameters: tuple[GradientDeviation, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """``points`` of the function ``objective`` after each step of an optimiser, of 8 numbers each.

    ``options`` are those of the optimiser; ``scale`` is that of the function.
    """

    options: Mapping[str, Any]
    objective: str
    scale: float
    points: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class OptimizerTrajectories:
    """Trajectories of an optimiser, for each group of other options.

    ``optimizer`` is the name of its class, ``bases`` the names of the classes of the runtime that
    it is derived from, the nearest first.
    """

    optimizer: str
    bases: tuple[str, ...]
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class ItemOrders:
    """The numbers of the items of each epoch: equal numbers are equal items.

    ``data_set`` has the numbers of all items that there are, or is None where that cannot be told.
    ``reason`` says why there are no orders.
    """

    orders: tuple[tuple[int, ...], ...] = ()
    data_set: tuple[int, ...] | None = None
    reason: str | None = None
