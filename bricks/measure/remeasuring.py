"""Selects bricks of a batch to measure again: known in another machine state, or uncertain.

Must not know how bricks are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from bricks.measure.importance import Importance, ModelNeeds
from bricks.samples.measurement import UNSURE_SHARE, Measurement, common_state, round_spread
from bricks.samples.state_correction import StateCorrection

if TYPE_CHECKING:
    from bricks.measure.jobs import Batch, ModelJob
    from bricks.samples.state_model import StateModel

# The share of a model's latency that may be the uncertainty of corrections, at most.
_MAX_OPEN = 0.2


def state_of(batch: Batch, known: Mapping[str, Measurement], new: Collection[str]) -> float | None:
    """The machine state in which a batch's bricks should be known.

    It is the state of the whole model if it runs too, and else the state of the ``new`` keys.
    """
    counts = {k: n for job in batch.jobs for k, n in job.decomposition.plan.counts.items()}
    wholes = [job.whole_key for job in batch.jobs if job.whole]
    anchors = [key for key in wholes if key in known] or sorted(new)
    parts = {key: known[key] for key in counts if key in known}
    return common_state((known[key] for key in anchors if key in known), parts, counts)


def open_shares(
    known: Mapping[str, Measurement], state_s: float | None, model: Callable[[], StateModel]
) -> dict[str, float]:
    """Relative uncertainties of latencies corrected to ``state_s`` from another state, by key.

    ``model`` returns how latencies change between states; it is called only if there are any.
    """
    others = {key: m for key, m in known.items() if not m.known_in(state_s)}
    if not others:
        return {}
    correction = StateCorrection(known.values(), state_s, model())
    return {key: correction.factor(m).relative_uncertainty for key, m in others.items()}


def stale(
    batch: Batch,
    known: Mapping[str, Measurement],
    open_by: Mapping[str, float],
    needs: Mapping[str, ModelNeeds],
    max_share: float,
) -> set[str]:
    """Bricks known in another state, whose corrections are too uncertain (:func:`open_shares`).

    The uncertainty of each may be ``max_share`` of a model's latency.
    """
    shares = Importance(needs, {}).of({key: m.latency_s() for key, m in known.items()})
    large = {key for key, open_share in open_by.items() if shares[key] * open_share > max_share}
    others = {key: open_share for key, open_share in open_by.items() if key not in large}
    return large.union(*(_too_many(job, known, others) for job in batch.jobs))


def _too_many(
    job: ModelJob, known: Mapping[str, Measurement], open_by: Mapping[str, float]
) -> set[str]:
    """Bricks of another state, each of small share, that together are too uncertain.

    The least uncertain ones are left out, as many as may err together.
    """
    counts = job.decomposition.plan.counts
    parts_s = {key: abs(n) * known[key].latency_s() for key, n in counts.items() if key in known}
    left = sorted((parts_s[k] * open_by[k], k) for k in parts_s.keys() & open_by.keys())
    allowed_s = _MAX_OPEN * sum(parts_s.values())
    kept = list(accumulate(part_s for part_s, _ in left))
    return {key for total_s, (_, key) in zip(kept, left, strict=True) if total_s > allowed_s}


def uncertain(batch: Batch, known: Mapping[str, Measurement]) -> set[str]:
    """Bricks whose samples are so noisy that a model's latency is too uncertain."""
    keys: set[str] = set()
    for job in batch.jobs:
        counts = job.decomposition.plan.counts
        spreads = {key: round_spread(known[key]) for key in counts if key in known}
        total_s = sum(abs(counts[key]) * latency.value for key, latency in spreads.items())
        parts = (counts[key] * one.value * one.relative for key, one in spreads.items())
        if math.hypot(*parts) > UNSURE_SHARE * total_s:
            keys |= {key for key, one in spreads.items() if one.relative > UNSURE_SHARE}
    return keys
