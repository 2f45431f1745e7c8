"""The share of a brick's latency in the models that need it, which sets the precision needed.

Until all bricks of a model are measured, its latency is extrapolated from the measured ones by the
work in its graph. Shares decide which bricks are sampled, and never change a sample. It must not
know how latencies are added up to estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """The bricks of a model by key: how often each latency counts, and the work of each brick."""

    counts: Mapping[str, int]
    works: Mapping[str, float]


class Importance:
    """The greatest share of each latency in the latency of any model.

    ``known_s`` has latencies that were measured before, in seconds by key.
    """

    def __init__(self, needs: Mapping[str, ModelNeeds], known_s: Mapping[str, float]) -> None:
        self._needs = needs
        self._known_s = known_s

    def of(self, latencies_s: Mapping[str, float]) -> dict[str, float]:
        """Shares of ``latencies_s`` between 0 and 1, by key; only keys of a model have one."""
        known_s = {**self._known_s, **latencies_s}
        shares: dict[str, float] = {}
        for need in self._needs.values():
            keys = [key for key in need.counts if key in latencies_s]
            if not keys:
                continue
            total_s = _extrapolated_s(need, known_s)
            for key in keys:
                share = abs(need.counts[key]) * latencies_s[key] / total_s if total_s else 1.0
                shares[key] = min(1.0, max(shares.get(key, 0.0), share))
        return shares


def _extrapolated_s(need: ModelNeeds, known_s: Mapping[str, float]) -> float:
    """A model's latency, if its unknown bricks take as long for their work as the known ones."""
    measured_s = work = all_work = 0.0
    for key, count in need.counts.items():
        weight = abs(count) * need.works[key]
        all_work += weight
        if key in known_s:
            measured_s += abs(count) * known_s[key]
            work += weight
    return measured_s * max(1.0, all_work / work) if work else measured_s
