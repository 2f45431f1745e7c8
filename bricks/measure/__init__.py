"""Measure bricks and whole models in a child process that the parent supervises.

The child process contains the damage of a brick that crashes, hangs or exhausts memory. It must not
know how latencies are added up.
"""
