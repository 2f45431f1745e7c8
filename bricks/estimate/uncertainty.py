"""The uncertainty of a recomposed latency.

There are two sources: each brick's latency, as its samples show; and the difference between a
brick's cost in its model and its cost when measured, which samples of bricks cannot show. The
second is bounded by the errors of comparisons over many models. Must not know how samples came
about.
"""

from __future__ import annotations

# Round numbers that held at least 95 % of half of the zoo's families, and of the others too, on two
# Xeon cores (1 % and 0.3 calls held them on two EPYC cores: the wider of the two counts).
# benchmarks/accuracy.py reports the share that they hold, and the scale that they would need for
# families that are left out. The first is a share of the latency of all bricks, because of their
# cache state. The second is in calls for each occurrence: the subtracted overhead may be too large
# or too small, since a call costs more when its code and data have left the caches.
STATE_SHARE = 0.035
CALL_SHARE = 1.0


def composition_s(total_s: float, occurrences: int, overhead_s: float) -> float:
    """Half the width, in seconds, that recomposing adds to an estimate's interval."""
    return STATE_SHARE * total_s + CALL_SHARE * overhead_s * occurrences
