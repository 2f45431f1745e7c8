"""Hosts that measure together: every distinct system measures each brick once.

A scheduler (Dask's, which the user starts) knows hosts that have joined it with ``bricks worker``.
Whoever has models deals out their bricks among them, and gathers what they measure.
"""
