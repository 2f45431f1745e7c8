"""Rules for the arithmetic of nodes that several families of operators share.

A multiply-add is two operations; an elementary function is one, whatever the function. Must not
know operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.operators.node import Node
    from bricks.operators.operator import Work


def no_work(node: Node) -> int:
    """The work of moving, selecting and converting data, and of constants: no operation."""
    return 0


def per_output(times: int) -> Work:
    """Return a rule of ``times`` operations for each element of the first output."""
    return lambda node: times * node.output.elements


def per_input(times: int) -> Work:
    """Return a rule of ``times`` operations for each element of the input data."""
    return lambda node: times * node.data_elements
