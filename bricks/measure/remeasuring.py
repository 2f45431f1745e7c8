"""Which bricks of a batch to measure again: known in another machine state, or too little.

Must not know how they are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate

from bricks.measure.importance import Importance, ModelNeeds
from bricks.measure.jobs import Batch, ModelJob
from bricks.samples.measurement import UNSURE_SHARE, Measurement, common_state, round_spread
from bricks.samples.state_correction import StateCorrection
from bricks.samples.state_model import StateModel

# The share of a model's latency that corrections between machine states may leave open, at most.
_MAX_OPEN = 0.2


def state_of(batch: Batch, known: Mapping[str, Measurement], new: Collection[str]) -> float | None:
    """The state that a batch's bricks should be known in.

    It is the state of the whole model where that is run too, and else that of the ``new`` keys.
    """
    counts = {k: n for job in batch.jobs for k, n in job.decomposition.plan.counts.items()}
    wholes = [job.whole_key for job in batch.jobs if job.whole]
    anchors = [key for key in wholes if key in known] or sorted(new)
    parts = {key: known[key] for key in counts if key in known}
    return common_state((known[key] for key in anchors if key in known), parts, counts)


def open_shares(
    known: Mapping[str, Measurement], state_s: float | None, model: Callable[[], StateModel]
) -> dict[str, float]:
    """How far corrections to a state leave latencies open, of those known in another, by key.

    Relative to each latency. ``model``, which says how latencies change, is only asked for where
    there are any.
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
    """Bricks known in another state, of which too much is left open: see :func:`open_shares`.

    Each may leave ``max_share`` of a model's latency open.
    """
    shares = Importance(needs, {}).of({key: m.latency_s() for key, m in known.items()})
    found = {key for key, open_share in open_by.items() if shares[key] * open_share > max_share}
    others = {key: open_share for key, open_share in open_by.items() if key not in found}
    return found.union(*(_too_many(job, known, others) for job in batch.jobs))


def _too_many(
    job: ModelJob, known: Mapping[str, Measurement], open_by: Mapping[str, float]
) -> set[str]:
    """Bricks of another state, each of little weight, that leave too much of a model open.

    All but those that may be wrong in common, the least uncertain ones.
    """
    counts = job.decomposition.plan.counts
    parts_s = {key: abs(n) * known[key].latency_s() for key, n in counts.items() if key in known}
    left = sorted((parts_s[k] * open_by[k], k) for k in parts_s.keys() & open_by.keys())
    allowed_s = _MAX_OPEN * sum(parts_s.values())
    kept = list(accumulate(part_s for part_s, _ in left))
    return {key for total_s, (_, key) in zip(kept, left, strict=True) if total_s > allowed_s}


def unsure(batch: Batch, known: Mapping[str, Measurement]) -> set[str]:
    """Bricks that leave too much of a model open, because the host was disturbed meanwhile."""
    found: set[str] = set()
    for job in batch.jobs:
        counts = job.decomposition.plan.counts
        spreads = {key: round_spread(known[key]) for key in counts if key in known}
        total_s = sum(abs(counts[key]) * each.value for key, each in spreads.items())
        parts = (counts[key] * each.value * each.relative for key, each in spreads.items())
        if math.hypot(*parts) > UNSURE_SHARE * total_s:
            found |= {key for key, each in spreads.items() if each.relative > UNSURE_SHARE}
    return found
