"""Predict the latency of unmeasured bricks, and plan which bricks to measure.

Here because both follow from one model of how latencies depend on work. Must not know how bricks
are measured, nor how their latencies are used.
"""
