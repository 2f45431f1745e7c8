"""Selects the inputs of a brick that need a buffer of their own in a walk.

Must not know the addresses of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.decompose.layout import BYTES, SUMS
from bricks.graph.model_metadata import SKETCHES, noted_sketches
from bricks.graph.tensor import TensorType
from bricks.graph.topology import used_values
from bricks.graph.view import graph_of, parse_model
from bricks.operators.dependence import branches_on_values, decisive_values
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.graph import Graph

_ALL_BYTES, _CAST = 256, "Cast"


def own_ports(brick: Brick) -> frozenset[int]:
    """Positions of inputs whose values must be the brick's own, not outputs of other bricks.

    Values that decide which branch runs, or how long an operator takes, must be its own.
    """
    return brick.steering_ports | _value_dependent_ports(brick)


def _value_dependent_ports(brick: Brick) -> set[int]:
    """Positions of inputs that may not have arbitrary values.

    These are bytes with a limited range (indices, say), 32-bit integers that are more than numbers
    to convert, and values whose distribution decides how long an operator takes, except for signs,
    which are written in place. Values without a noted distribution are random, where other bricks
    have left positive numbers.
    """
    names = [
        name
        for name, type_ in brick.inputs.items()
        if isinstance(type_, TensorType) and (type_.dtype in BYTES or type_.dtype == SUMS)
    ]
    branching = any(branches_on_values(operator_called(name)) for name in brick.operators)
    if not names and not branching and SKETCHES.encode() not in brick.model:
        return set()  # parsing takes longer than all the rest
    proto = parse_model(brick.model)
    graph = graph_of(proto)
    ranges = integer_ranges(graph, names) if names else {}
    free = {n for n, range_ in ranges.items() if range_.high - range_.low == _ALL_BYTES}
    free.update(name for name in names if _is_sum(graph, name))
    own = {name for name, sketch in noted_sketches(proto).items() if not sketch.signs_only}
    own.update(name for node in graph.nodes for name in decisive_values(node, graph.types))
    own.update(name for name in names if name not in free)
    return {port for port, name in enumerate(brick.inputs) if name in own}


def _is_sum(graph: Graph, name: str) -> bool:
    """Whether a 32-bit integer is only converted to a float, as sums of quantised products are."""
    type_ = graph.types[name]
    if not isinstance(type_, TensorType) or type_.dtype != SUMS:
        return False
    readers = [node for node in graph.nodes if name in used_values(node)]
    converted = (graph.types[made] for node in readers for made in node.output)
    return all(node.op_type == _CAST for node in readers) and all(
        isinstance(made, TensorType) and made.floating for made in converted
    )
