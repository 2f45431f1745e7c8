"""Measures bricks itself, and writes the figures of the documentation: ``python -m benchmarks``."""
