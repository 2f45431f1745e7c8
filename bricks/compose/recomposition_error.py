"""The error of recomposing: how a brick's cost in its model differs from its cost when measured.

Samples of bricks cannot show this difference; the errors of comparisons over many models bound it.
Must not know how samples came about.
"""

from __future__ import annotations

# Round numbers that held at least 95 % of half of the zoo's families, and of the others too, on two
# Xeon cores (1 % and 0.3 calls held them on two EPYC cores: the wider numbers count).
# benchmarks/accuracy.py reports the share that they hold, and the scale that they would need for
# families that are left out. The first is a share of the latency of all bricks, because of their
# cache state. The second is in calls for each occurrence: the subtracted overhead may be too large
# or too small, since a call costs more when its code and data have left the caches.
STATE_SHARE = 0.035
CALL_SHARE = 1.0
# The third is a share of the latency of bricks that mostly read their weights: where these lie in
# memory is another in each process, and decides how much of them a shared cache keeps. Chosen on
# chains of products of one size (18 of 20 are inside), and holds for all 16 of two sizes:
# research/measuring.md has the figures.
WEIGHTS_SHARE = 0.06

# Twice as much of stretches of tiny nodes (see decompose.stretches) so long that what the runtime
# keeps of them may fit into a core's cache or not: from process to process, a model of 6,000 nodes
# took 2.5 to 6.7 ms. Assumed, not fitted.
STRETCH_SHARE = 0.12
CACHED_NODES = 1 << 10

# The spread between physical hosts of one kind, as half the width of an interval that holds 95 % of
# them, relative to latencies that another host measured. It was chosen before it was compared on 14
# models (research/measuring.md).
OTHER_HOST_SHARE = 0.08

# The same for calls that another host issued to a device: assumed, since the hosts of cards differ,
# and the speed of one changed by up to 1.6 times within minutes.
OTHER_HOST_CALLS_SHARE = 0.4

# The last is for recorded programs, whose call overhead in Python and in the autograd engine
# differs from program to program. A share of its cost that was assumed and never fitted; it is a
# small part of the intervals in benchmarks/torch_steps.py.
CALL_OVERHEAD_SHARE = 0.5


def composition_s(
    total_s: float, occurrences: int, overhead_s: float, weight_bound_s: float = 0.0
) -> float:
    """Half the width, in seconds, that recomposing adds to an estimate's interval.

    ``weight_bound_s`` are the seconds, of ``total_s``, of bricks that mostly read their weights.
    """
    return cache_state_s(total_s, weight_bound_s) + calls_s(occurrences, overhead_s)


def cache_state_s(total_s: float, weight_bound_s: float) -> float:
    """The part of :func:`composition_s` that is due to the state of the caches."""
    return STATE_SHARE * total_s + WEIGHTS_SHARE * weight_bound_s


def calls_s(occurrences: int, overhead_s: float) -> float:
    """The part of :func:`composition_s` that is due to the cost of calls."""
    return CALL_SHARE * overhead_s * occurrences
