"""Selects bricks of a batch to measure again: those whose samples are too noisy.

Must not know how bricks are measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.samples.measurement import UNSURE_SHARE, Measurement, round_spread

if TYPE_CHECKING:
    from bricks.measure.jobs import Batch


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
