"""Passes over the bricks of a walk: how the median of their sum differs from the sum of medians.

Bricks of one walk are sampled in the same passes, and a pass is nearly a run of all of them. So
what varies together, such as the speed of the host between two passes, and what varies by itself
need no model: the sums of passes have both. Must not know how walks are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import Term, median, pooled_variance

if TYPE_CHECKING:
    from bricks.system.host_conditions import HostConditions

# Rounds with less than this share of a walk's time show too little of its sum.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class WalkGroup:
    """Bricks that were sampled in the same passes, by key, and their sum as a ``term``.

    ``factor`` is the median of their sum relative to the sum of their medians.
    """

    keys: tuple[str, ...]
    factor: float
    term: Term


def walked_together(parts: Mapping[str, tuple[Measurement, int]]) -> list[WalkGroup]:
    """The bricks of ``parts``, each with its number of occurrences, by the walk they were in.

    Rounds with the same conditions of the host were sampled in the same passes. A brick without
    known conditions is by itself, and so are its occurrences.
    """
    by_walk: dict[HostConditions | str, list[str]] = {}
    for key, (measurement, _) in parts.items():
        by_walk.setdefault(measurement.walked[0].host or key, []).append(key)
    return [_walked({key: parts[key] for key in keys}) for keys in by_walk.values()]


def _walked(parts: Mapping[str, tuple[Measurement, int]]) -> WalkGroup:
    keys = tuple(parts)
    if len(parts) == 1:
        ((measurement, count),) = parts.values()
        return WalkGroup(keys, 1.0, measurement.runs.term(measurement.latency_s, count))
    medians_s = sum(n * m.latency_s for m, n in parts.values())
    sums = [(bricks_s, run) for bricks_s, run in _sums(parts.values()) if run is not None]
    whole = [(bricks_s, run) for bricks_s, run in sums if bricks_s > _MOST * abs(medians_s)]
    factor = 1.0
    if whole:
        factors = [run.latency_s / bricks_s for bricks_s, run in whole]
        factor = median(factors, [run.weight for _, run in whole])
    middle_s = factor * medians_s
    mean_s = max(middle_s, sum(n * m.mean_s for m, n in parts.values()))  # long runs are cut short
    quiet = [run.host_s for _, run in whole if not run.disturbed]
    variance = pooled_variance(quiet or [run.host_s for _, run in whole])
    return WalkGroup(keys, factor, Term(middle_s, mean_s, variance, mean_s - middle_s))


def _sums(parts: Iterable[tuple[Measurement, int]]) -> Iterable[tuple[float, Round | None]]:
    """For each round, the sum of its latencies in seconds, and the round of the sums of passes."""
    by_round: dict[HostConditions, list[tuple[int, Round]]] = {}
    for measurement, count in parts:
        for taken in measurement.walked:
            if taken.host is not None:
                by_round.setdefault(taken.host, []).append((count, taken))
    for bricks in by_round.values():
        passes_s = zip(*(r.host_s for _, r in bricks), strict=False)
        counts = [n for n, _ in bricks]
        sums_s = [sum(n * s for n, s in zip(counts, of, strict=True)) for of in passes_s]
        waited_share = bricks[0][1].waited_share
        run = (
            Round(tuple(sums_s), waited_share=waited_share) if sums_s and min(sums_s) > 0 else None
        )
        yield sum(n * r.latency_s for n, r in bricks), run
