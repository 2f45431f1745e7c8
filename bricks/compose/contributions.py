"""What each brick of a plan contributes to its latency, and sums of that by where it comes from.

Must not know how contributions are put into an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bricks.compose.estimate import Share
from bricks.compose.latencies import BrickLatencies
from bricks.compose.recomposition_error import CACHED_NODES, cache_state_s
from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class Contributions:
    """Seconds of all occurrences of each brick of ``plan``, by key, calls subtracted.

    They are negative for bricks whose latency is subtracted more often than it is added.
    """

    plan: Plan
    latencies: BrickLatencies
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, plan: Plan, latencies: BrickLatencies) -> Contributions:
        """The contributions of all bricks whose latency is known."""
        counts = plan.counts
        seconds = {key: counts[key] * s for key, s in latencies.net_s.items()}
        return cls(plan, latencies, seconds)

    @property
    def total_s(self) -> float:
        """The work of a lane that runs them all."""
        return sum(self.seconds.values(), 0.0)

    @property
    def gross_s(self) -> float:
        """Of all bricks, subtracted ones too."""
        return sum(map(abs, self.seconds.values()))

    @property
    def predicted_s(self) -> float:
        """Of bricks that were not measured."""
        return self._of(sorted(self.latencies.predicted))

    @property
    def published_s(self) -> float:
        """The part that other hosts tell."""
        published = self.latencies.published
        return sum(abs(s) * published.get(key, 0.0) for key, s in self.seconds.items())

    @property
    def cache_state_s(self) -> float:
        """Half the width that is due to the state of the caches (see ``uncertainty``)."""
        long = sorted({o.brick for o in self.plan.occurrences if o.nodes >= CACHED_NODES})
        return cache_state_s(self.gross_s, self._of(self.plan.weight_bound), self._of(long))

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
        """Half the width that follows from how well the cost of a call is known."""
        call_s = self.latencies.call_s
        ends_s = [self._with_call(cost_s) for cost_s in (call_s.low, call_s.value, call_s.high)]
        return (max(ends_s) - min(ends_s)) / 2

    def _with_call(self, call_s: float) -> float:
        """The latency if a call cost ``call_s``."""
        known, counts = self.latencies, self.plan.counts.items()
        return call_s + sum(
            n * known.without_call(known.gross_s[key].value, call_s) for key, n in counts
        )

    def _of(self, keys: Iterable[str]) -> float:
        return sum((abs(self.seconds[key]) for key in keys), 0.0)
