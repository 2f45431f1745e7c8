"""The contribution of each brick to a plan's latency, and sums of contributions by provenance.

Must not know in which order bricks run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.estimate import Share
from bricks.compose.own_runs import LimitShares
from bricks.compose.recomposition_error import CACHED_NODES, STRETCH_SHARE, cache_state_s

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.compose.latencies import BrickLatencies
    from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class Contributions:
    """Seconds of all occurrences of each brick of ``plan`` by key, call overhead subtracted.

    Negative for a brick whose latency is subtracted more often than it is added.
    """

    plan: Plan
    latencies: BrickLatencies
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, plan: Plan, latencies: BrickLatencies) -> Contributions:
        """The contributions of all bricks of ``plan`` in ``latencies``."""
        counts = plan.counts
        seconds = {key: counts[key] * s for key, s in latencies.net_s.items()}
        return cls(plan, latencies, seconds)

    @property
    def total_s(self) -> float:
        """Seconds of all bricks one after another."""
        return sum(self.seconds.values(), 0.0)

    @property
    def gross_s(self) -> float:
        """The sum of absolute contributions, those of subtracted bricks included."""
        return sum(map(abs, self.seconds.values()))

    @property
    def predicted_s(self) -> float:
        """Absolute seconds of bricks that were not measured."""
        return self._absolute_s(sorted(self.latencies.predicted))

    @property
    def published_s(self) -> float:
        """Absolute seconds that come from measurements of other hosts."""
        published = self.latencies.published
        return sum(abs(s) * published.get(key, 0.0) for key, s in self.seconds.items())

    @property
    def cache_state_s(self) -> float:
        """Half the width of the interval, in seconds, that is due to the state of the caches."""
        weight_bound_s = self._absolute_s(self.plan.weight_bound)
        return cache_state_s(self.gross_s, weight_bound_s) + self.stretches_state_s

    @property
    def stretches_state_s(self) -> float:
        """The part of it that is due to long stretches of tiny nodes."""
        long = sorted({o.brick for o in self.plan.occurrences if o.nodes >= CACHED_NODES})
        return STRETCH_SHARE * self._absolute_s(long)

    def by_limit(self, basis: Basis) -> LimitShares:
        """The shares of a run by what decides them, see :class:`LimitShares`."""
        run_s, known = self.total_s + self.latencies.call_s.value, self.latencies
        if run_s <= 0:
            return LimitShares(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        limited = np.zeros(3)
        for key, seconds in self.seconds.items():
            if key not in known.predicted:
                of = basis.sensitivities
                limited += seconds / run_s * np.array([1, 0, 0] if of is None else of.limits(key))
        arithmetic, memory, calls = limited.tolist()
        occurrences = sum(map(abs, self.plan.counts.values()))
        return LimitShares(
            arithmetic=arithmetic,
            memory=memory,
            calls=calls,
            overhead=occurrences * known.call_s.value / run_s,
            weights=self._absolute_s(self.plan.weight_bound) / run_s,
            predicted=self.predicted_s / run_s,
        )

    @property
    def coverage(self) -> float:
        """The share of the occurrences whose brick is measured."""
        measured = self.latencies.gross_s.keys() - self.latencies.predicted
        covered = [occurrence.brick in measured for occurrence in self.plan.occurrences]
        return sum(covered) / len(covered) if covered else 1.0

    @property
    def shares(self) -> tuple[Share, ...]:
        """The share of each brick, the largest first."""
        counts, total_s, published = self.plan.counts, self.total_s, self.latencies.published
        return tuple(
            Share(
                key,
                counts[key],
                self.seconds[key],
                self.seconds[key] / total_s if total_s else 0.0,
                predicted=key in self.latencies.predicted,
                published=published.get(key) == 1.0,
            )
            for key in sorted(self.seconds, key=lambda k: -self.seconds[k])
        )

    def calls_uncertain_s(self) -> float:
        """Half the width of the interval, in seconds, that is due to the call cost's error."""
        call_s = self.latencies.call_s
        ends_s = [self._with_call(cost_s) for cost_s in (call_s.low, call_s.value, call_s.high)]
        return (max(ends_s) - min(ends_s)) / 2

    def _with_call(self, call_s: float) -> float:
        """The latency of a run if a call cost ``call_s`` seconds."""
        known, counts = self.latencies, self.plan.counts.items()
        return call_s + sum(
            n * known.without_call(known.gross_s[key].value, call_s) for key, n in counts
        )

    def _absolute_s(self, keys: Iterable[str]) -> float:
        return sum((abs(self.seconds[key]) for key in keys), 0.0)
