"""Measure bricks and whole models in a child process that the parent supervises.

Here because what is measured may crash, hang or exhaust memory. Must not know how latencies are
added up.
"""
