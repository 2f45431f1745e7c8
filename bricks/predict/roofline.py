"""Roofline of a brick: its latency as a sum of parts, each with a rate of the machine.

The parts are a call, operations, bytes of values, bytes of uncached or cached weights, and separate
stretches of memory. The rates are fitted to measured bricks: for each kernel with the rates of all
bricks as a prior.

Rates are factors of the parts, and factors are logarithms. The highest rates that measured bricks
reached bound predictions.

A kernel that was never measured is predicted from other kernels, and could appear faster than the
machine computes, or than its memory delivers weights. Its latency is bounded by both, as in the
roofline model (Williams, Waterman and Patterson, *Roofline*, 2009), with rates of measured bricks
in place of the manufacturer's peaks. Must not know how residuals are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bricks.predict.features import CONVOLUTION, PRODUCT, BrickFeatures

Array = np.ndarray

# Prior seconds of each part (see _parts), typical of processors of this decade. Like all factors in
# this module they are logarithms.
_START: Array = np.log([3e-6, 2e-11, 1e-10, 3e-11, 1e-10, 1e-9])

# A model's working set counts as cached up to the first of these sizes in bytes, and as uncached
# from the second on; in between, in proportion. As logarithms to base 2. Of the few pairs compared,
# these predicted both halves of the zoo's families best.
_CACHED, UNCACHED = 21.0, 26.0

# The prior width of factors (a standard deviation of their logarithms), for all bricks and for
# those of an operator.
_FREEDOM, _OWN_FREEDOM = 2.0, 1.0

# An operator's rates are fitted again only if more than this share of its bricks is left out.
_NOTABLE = 0.3


@dataclass(frozen=True, slots=True)
class Roofline:
    """Log-seconds of a unit of each part: ``factors`` for all bricks, ``by_kernel`` for a kernel's.

    ``kernels``, ``parts`` and ``latency_s`` have an entry or row for each brick of the fit.
    """

    factors: Array
    by_kernel: Mapping[str, Array]
    kernels: Array
    parts: Array
    latency_s: Array

    @classmethod
    def fit(
        cls, features: Sequence[BrickFeatures], latency_s: Array, prior: Array | None = None
    ) -> Roofline:
        """Fit to measured bricks, in seconds; ``prior`` are the factors of similar bricks."""
        parts, kernels = _parts(features), np.array([t.kernel for t in features])
        factors = fitted_factors(parts, latency_s, _START if prior is None else prior, _FREEDOM)
        bare = cls(factors, {}, kernels, parts, latency_s)
        return replace(
            bare, by_kernel={c: bare._kernel_factors(kernels == c) for c in sorted(set(kernels))}
        )

    @classmethod
    def usual(cls) -> Roofline:
        """The expected roofline before anything is measured."""
        return cls.known(_START, {})

    @classmethod
    def known(cls, factors: Array, by_kernel: Mapping[str, Array]) -> Roofline:
        """From stored factors, without the bricks that they were fitted to."""
        nothing = np.zeros((0, len(_START)))
        return cls(factors, by_kernel, np.array([], str), nothing, np.array([]))

    def seconds(self, features: Sequence[BrickFeatures]) -> Array:
        """Return the latency of each brick in seconds."""
        factors = np.array([self.by_kernel.get(t.kernel, self.factors) for t in features])
        return summed_s(_parts(features), factors)

    def seconds_without(self, left_out: Array) -> Array:
        """Return latencies in seconds of all fitted bricks, from a fit without some of them.

        ``left_out`` are positions. The factors common to all operators do not change, nor do the
        factors of operators that lose only a few bricks.
        """
        included = np.ones(len(self.kernels), bool)
        included[left_out] = False
        by_kernel = dict(self.by_kernel)
        for name in sorted(set(self.kernels[left_out])):
            members = self.kernels == name
            if (members & ~included).sum() > _NOTABLE * members.sum():
                by_kernel[name] = self._kernel_factors(members & included)
        return summed_s(self.parts, np.array([by_kernel[name] for name in self.kernels]))

    def _kernel_factors(self, members: Array) -> Array:
        if not members.any():
            return self.factors
        return fitted_factors(
            self.parts[members], self.latency_s[members], self.factors, _OWN_FREEDOM
        )


def _parts(features: Sequence[BrickFeatures]) -> Array:
    """The parts of each brick, in the order of ``_START``.

    A call; operations; bytes of values, of cached and of uncached weights; stretches of memory.
    Other effects of the brick's context are learned by the Gaussian process: with as many more
    parts, a hundred measured bricks predicted the zoo half as well.
    """
    rows = []
    for t in features:
        size = math.log2(max(1.0, t.context.working_set_bytes))
        uncached = min(1.0, max(0.0, (size - _CACHED) / (UNCACHED - _CACHED)))
        values = t.read_bytes + t.written_bytes
        weights = t.weight_bytes * (1.0 - uncached), t.weight_bytes * uncached
        rows.append((t.calls, t.flops, values, *weights, t.pieces))
    return np.array(rows).reshape(-1, len(_START))


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


# The least number of measured bricks from which limits follow.
ENOUGH = 300
# Smaller bricks are left out: the timer's error and the caches decide how fast they seem.
_MIN_FLOPS, _MIN_BYTES = 1e7, 2.0**20
# A run reads all weights of these kinds. Other operators may have branches, experts or tables.
_READ_ALL = frozenset({CONVOLUTION, PRODUCT})


@dataclass(frozen=True, slots=True)
class RooflineLimits:
    """Rates of one target: operations a second, and bytes of weights read from memory a second.

    Infinite where too few bricks were measured.
    """

    flops_per_s: float = math.inf
    bytes_per_s: float = math.inf

    @classmethod
    def fit(cls, features: Sequence[BrickFeatures], latency_s: Array) -> RooflineLimits:
        """Return the highest rates of measured bricks, whose latencies are in seconds."""
        if len(features) < ENOUGH:
            return NO_LIMITS
        flops, weights = _flops_and_weight_bytes(features)
        return cls(_highest(flops, latency_s, _MIN_FLOPS), _highest(weights, latency_s, _MIN_BYTES))

    def min_latency_s(self, features: Sequence[BrickFeatures]) -> Array:
        """Return a lower bound of the latency of each brick, in seconds."""
        flops, weights = _flops_and_weight_bytes(features)
        bounds_s: Array = np.maximum(flops / self.flops_per_s, weights / self.bytes_per_s)
        return bounds_s


NO_LIMITS = RooflineLimits()


def _flops_and_weight_bytes(features: Sequence[BrickFeatures]) -> tuple[Array, Array]:
    """Operations, and bytes of uncached weights, of each brick."""
    weights = [
        t.weight_bytes
        if t.kind in _READ_ALL and t.context.working_set_bytes >= 2.0**UNCACHED
        else 0.0
        for t in features
    ]
    return np.array([t.flops for t in features]), np.array(weights)


def _highest(amounts: Array, latency_s: Array, minimum: float) -> float:
    large = amounts >= minimum
    return float((amounts[large] / latency_s[large]).max()) if large.any() else math.inf
