"""Checks of a training: the results from which its correctness is judged, and two functions.

On the functions the optimiser of a runtime is compared with its definition. One is convex and
ill-conditioned, the other has a curved valley. The runtime differentiates :func:`objective_value`
itself, the definition uses :func:`objective_gradient`. Must not know any optimiser, nor the
criteria.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

QUADRATIC, ROSENBROCK = "ill-conditioned quadratic", "Rosenbrock function"
OBJECTIVES = (QUADRATIC, ROSENBROCK)

# Curvatures of the quadratic, whose condition number is 1000.
CURVATURES = tuple(float(c) for c in np.logspace(-3, 0, 8))

# The usual factor of the Rosenbrock function, and the scale that makes its initial curvature about
# that of the quadratic.
_VALLEY, _SCALE = 100.0, 1e-3

# The usual initial point of the Rosenbrock function, also for the quadratic.
START = (-1.2, 1.0) * 4

# The shape of a parameter with these elements: optimisers may treat matrices differently.
SHAPE = (2, 4)

# With the largest curvature times the learning rate below this, gradient descent is stable with
# any momentum, so that no rounding error grows.
_STABLE = 0.5


def scale_for(learning_rate: float) -> float:
    """Return the factor of both functions with which a learning rate is stable."""
    return min(1.0, _STABLE / learning_rate) if learning_rate > 0 else 1.0


def objective_value(name: str, x: Any, scale: float) -> Any:
    """Evaluate a function at ``x``, eight elements of any numeric type."""
    pairs = range(len(START) - 1)
    if name == QUADRATIC:
        return scale * sum(0.5 * c * (x[i] - 1) ** 2 for i, c in enumerate(CURVATURES))
    terms = (_VALLEY * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in pairs)
    return scale * _SCALE * sum(terms)


def objective_gradient(name: str, x: np.ndarray, scale: float) -> np.ndarray:
    """Return the gradient of a function at ``x`` (float64, of shape (8,)), by its formula."""
    if name == QUADRATIC:
        return np.asarray(scale * np.array(CURVATURES) * (x - 1))
    slope = np.zeros_like(x)
    off = x[1:] - x[:-1] ** 2
    slope[:-1] = -4 * _VALLEY * x[:-1] * off - 2 * (1 - x[:-1])
    slope[1:] += 2 * _VALLEY * off
    return scale * _SCALE * slope


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
