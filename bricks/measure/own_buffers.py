"""Inputs of a brick that need a buffer of their own in a walk, whatever others have left elsewhere.

Must not know where values lie.
"""

from __future__ import annotations

from bricks.decompose.layout import BYTES
from bricks.decompose.plan import Brick
from bricks.graph.model_metadata import SKETCHES, noted_sketches
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, parse_model
from bricks.operators.dependence import branches_on_values, decisive_values
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import operator_called

_ALL_BYTES = 256


def own_ports(brick: Brick) -> frozenset[int]:
    """The positions of inputs whose values must be those of the brick, and none that others left.

    A value that decides what runs must not be one that another brick has left.
    """
    return brick.steered_ports | _decided(brick)


def _decided(brick: Brick) -> set[int]:
    """The positions of inputs that may not hold what other bricks have left in their place.

    These are bytes that may not be any, since they are indices, say; and values whose distribution
    decides how long an operator takes, except for signs, which are written in place. Those of which
    nothing is noted are random, and others have left positive ones.
    """
    names = [n for n, t in brick.inputs.items() if isinstance(t, TensorType) and t.dtype in BYTES]
    branching = any(branches_on_values(operator_called(name)) for name in brick.operators)
    if not names and not branching and SKETCHES.encode() not in brick.model:
        return set()  # parsing takes longer than all the rest
    proto = parse_model(brick.model)
    graph = graph_of(proto)
    ranges = integer_ranges(graph, names) if names else {}
    free = {n for n, found in ranges.items() if found.high - found.low == _ALL_BYTES}
    own = {name for name, sketch in noted_sketches(proto).items() if not sketch.signs_alone}
    own.update(name for node in graph.nodes for name in decisive_values(node, graph.types))
    own.update(name for name in names if name not in free)
    return {port for port, name in enumerate(brick.inputs) if name in own}
