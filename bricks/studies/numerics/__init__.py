"""Operators and networks over runtimes: latency, rates, and accuracy against double precision.

Levels 0 and 1 of Deep500 (Ben-Nun et al., IPDPS 2019). Must not know how they are shown.
"""
