"""Roofline of a brick: its latency as a sum of parts, each with a rate of the machine.

The parts are a call, operations, bytes of values, bytes of uncached or cached weights, and separate
stretches of memory. The rates are fitted to measured bricks: for each kernel with the rates of all
bricks as a prior. Must not know how residuals are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.factors import fitted_factors, summed_s

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures

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
