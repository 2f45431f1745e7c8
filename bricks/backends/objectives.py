"""Two functions to minimise, on which the optimiser of a runtime is compared with its definition.

One is convex and ill-conditioned, the other has a curved valley. The runtime differentiates
:func:`value` itself, the definition uses :func:`gradient`. Must not know any optimiser.
"""

from __future__ import annotations

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


def value(name: str, x: Any, scale: float) -> Any:
    """Evaluate a function at ``x``, eight elements of any numeric type."""
    pairs = range(len(START) - 1)
    if name == QUADRATIC:
        return scale * sum(0.5 * c * (x[i] - 1) ** 2 for i, c in enumerate(CURVATURES))
    terms = (_VALLEY * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in pairs)
    return scale * _SCALE * sum(terms)


def gradient(name: str, x: np.ndarray, scale: float) -> np.ndarray:
    """Return the gradient of :func:`value` at ``x`` (float64, of shape (8,)), by its formula."""
    if name == QUADRATIC:
        return np.asarray(scale * np.array(CURVATURES) * (x - 1))
    slope = np.zeros_like(x)
    off = x[1:] - x[:-1] ** 2
    slope[:-1] = -4 * _VALLEY * x[:-1] * off - 2 * (1 - x[:-1])
    slope[1:] += 2 * _VALLEY * off
    return scale * _SCALE * slope
