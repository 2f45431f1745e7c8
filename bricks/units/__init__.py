"""Quantities: a number with its interval, and curves of such numbers over a size."""
