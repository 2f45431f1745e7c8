"""Predict the latency of bricks that were not measured, and plan which to measure.

Here because both follow from one model of how latencies depend on work. Must not know how bricks
are measured, nor what is made of their latencies.
"""
