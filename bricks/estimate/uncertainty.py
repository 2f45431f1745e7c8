"""How far a recomposed latency may be off.

Two things are uncertain: each brick's latency, as its samples show; and whether a brick costs in
its model what it costs when it is measured, which no samples of bricks can show. The second is
bounded by what comparisons over many models have found. It must not know how samples came about.
"""

from __future__ import annotations

# Round numbers that held at least 95 % of half of the zoo's families, and of the others too, on two
# Xeon cores (1 % and 0.3 calls held them on two EPYC cores: the wider of the two counts).
# benchmarks/accuracy.py reports how many they hold, and by how much they would have to be scaled
# for families that are left out. Of the latency of all bricks: their state in the caches. Of a
# call's overhead, for each occurrence: what is subtracted may be too much or too little, since a
# call costs more when its code and data have left the caches.
STATE_SHARE = 0.035
CALL_SHARE = 1.0


def composition_s(total_s: float, occurrences: int, overhead_s: float) -> float:
    """Half the width, in seconds, of what recomposing adds to an estimate's interval."""
    return STATE_SHARE * total_s + CALL_SHARE * overhead_s * occurrences
