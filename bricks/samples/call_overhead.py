"""Probes: the cost of a runtime call before any operator runs.

A brick is timed by calling the runtime once; inside a model the same nodes share one call. Chains
of trivial nodes of two lengths separate the cost of a call from that of a node: the call cost is
the intercept of latency over length. A target measures probes like bricks, and the store keeps them
under keys of their own. Must not know how they are measured.
"""

from __future__ import annotations

SHORT, LONG = 1, 33
PROBES = {length: f"p1-chain{length}" for length in (SHORT, LONG)}


def call_overhead_s(short_s: float, long_s: float) -> float:
    """The runtime's cost per call, in seconds, from the latencies of the two chains."""
    per_node = (long_s - short_s) / (LONG - SHORT)
    return max(0.0, short_s - SHORT * per_node)
