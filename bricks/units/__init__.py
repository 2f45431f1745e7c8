"""Quantities: a number with its interval, curves over a size, samples, parsing and JSON."""
