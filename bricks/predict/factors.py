"""Rates of a roofline: a latency is a sum of parts, each with a factor fitted to measurements.

Factors are logarithms. Must not know what the parts are.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# The error of a latency that remains in any case, as a standard deviation of its logarithm.
_ERROR = 0.3
_STEPS = 25


def summed_s(parts: Array, factors: Array) -> Array:
    """Return the latency in seconds of each row of ``parts``."""
    seconds: Array = (parts * np.exp(factors)).sum(axis=-1)
    return seconds


def fitted_factors(parts: Array, latency_s: Array, prior: Array, freedom: float) -> Array:
    """The most likely factors, by the method of Levenberg and Marquardt; the loss is Cauchy's."""
    goal, pull = np.log(latency_s), (_ERROR / freedom) ** 2
    unit = np.eye(len(prior))

    def evaluate(at: Array) -> tuple[float, Array, Array]:
        shares = parts * np.exp(at)
        total = shares.sum(axis=1)
        errors = goal - np.log(total)
        cost = np.log1p(errors**2).sum() + pull * ((at - prior) ** 2).sum()
        return float(cost), errors, shares / total[:, None]

    factors, damping = prior, 0.1
    cost, errors, shares = evaluate(factors)
    for _ in range(_STEPS):
        weighted = shares / (1 + errors**2)[:, None]
        slope = weighted.T @ errors - pull * (factors - prior)
        step = np.linalg.solve(weighted.T @ shares + (pull + damping) * unit, slope)
        attempt = evaluate(factors + step)
        if attempt[0] >= cost:
            damping *= 8
            continue
        converged = cost - attempt[0] < 1e-4 * cost
        factors, damping = factors + step, damping / 4
        cost, errors, shares = attempt
        if converged:
            break
    return factors
