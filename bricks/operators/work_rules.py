"""Rules for the arithmetic of nodes that several families of operators share.

A multiply-add is two operations; an elementary function is one, whatever the function. Must not
know operators.
"""

from __future__ import annotations

from bricks.operators.node import Node
from bricks.operators.operator import Work


def no_work(node: Node) -> int:
    """Moving, selecting and converting data, and constants: no operation."""
    return 0


def per_output(times: int) -> Work:
    """So many operations for each element of the first output."""
    return lambda node: times * node.output.elements


def per_input(times: int) -> Work:
    """So many operations for each element of the data that are read."""
    return lambda node: times * node.data_elements
