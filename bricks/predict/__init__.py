"""Predict the latency of unmeasured bricks, and plan which bricks to measure.

Both follow from one model of latency as a function of work. Must not know how bricks are measured,
nor how their latencies are used.
"""
