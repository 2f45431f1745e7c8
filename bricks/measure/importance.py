"""The share that a brick's latency has of the models that need it; it sets the precision needed.

Before all bricks of a model are measured, its latency is extrapolated from those that are, by the
work in its graph. That decides where samples are taken, and never what they show. It must not know
how latencies are added up to estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """The bricks of a model: how often each one's latency counts, and the work in each, by key."""

    counts: Mapping[str, int]
    works: Mapping[str, float]


class Importance:
    """The greatest share that each latency has of any model's.

    ``known_s`` holds latencies that were measured before, in seconds by key.
    """

    def __init__(self, needs: Mapping[str, ModelNeeds], known_s: Mapping[str, float]) -> None:
        self._needs = needs
        self._known_s = known_s

    def of(self, latencies_s: Mapping[str, float]) -> dict[str, float]:
        """Shares of those of ``latencies_s`` that a model counts, between 0 and 1."""
        known_s = {**self._known_s, **latencies_s}
        shares: dict[str, float] = {}
        for need in self._needs.values():
            mine = [key for key in need.counts if key in latencies_s]
            if not mine:
                continue
            total_s = _extrapolated_s(need, known_s)
            for key in mine:
                share = abs(need.counts[key]) * latencies_s[key] / total_s if total_s else 1.0
                shares[key] = min(1.0, max(shares.get(key, 0.0), share))
        return shares


def _extrapolated_s(need: ModelNeeds, known_s: Mapping[str, float]) -> float:
    """A model's latency, if its other bricks are as fast for their work as the known ones."""
    measured_s = work = all_work = 0.0
    for key, count in need.counts.items():
        weight = abs(count) * need.works[key]
        all_work += weight
        if key in known_s:
            measured_s += abs(count) * known_s[key]
            work += weight
    return measured_s * max(1.0, all_work / work) if work else measured_s
