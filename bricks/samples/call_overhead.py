"""Probes: what a call of the runtime costs before any operator runs.

A brick is timed by calling the runtime once; inside a model the same nodes share one call. Chains
of trivial nodes of two lengths tell a call's own cost from a node's: the intercept of latency over
length. Probes are measured on a target like bricks are, and kept in the store under keys of their
own.
"""

from __future__ import annotations

SHORT, LONG = 1, 33
PROBES = {length: f"p1-chain{length}" for length in (SHORT, LONG)}


def call_overhead_s(short_s: float, long_s: float) -> float:
    """The runtime's cost per call, in seconds, from the latencies of the two chains."""
    per_node = (long_s - short_s) / (LONG - SHORT)
    return max(0.0, short_s - SHORT * per_node)
