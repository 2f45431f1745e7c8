"""The program in a portable suite: it measures on a host where nothing of this package is.

It runs in Python 3.9 or later with its runtime and NumPy alone. Must not know any runtime.
"""
