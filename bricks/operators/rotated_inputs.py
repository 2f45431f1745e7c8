"""The inputs whose values decide how long a run takes, and may change from run to run.

Processors learn values that come again and again: comparisons of a tree or a sort, signs, rows of a
table. A server sees fresh inputs, so runs get fresh values there. Inputs that decide what is run
keep theirs: a branch, a number of iterations, a shape. Must not know how values are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from bricks.graph.containers import ContainerType
from bricks.graph.loops import conditional_loops
from bricks.graph.model_metadata import known_values, noted_sketches
from bricks.graph.program import is_call
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.topology import inner_nodes, producers, used_values
from bricks.graph.view import graph_of
from bricks.operators.dependence import decisive_values, dependent_inputs
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import operator_of
from bricks.operators.steering import steered_values, steering_inputs

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph


def rotated_inputs(
    proto: onnx.ModelProto, sensitive: Callable[[str], bool] = lambda operator: False
) -> set[str]:
    """Return the names of the inputs of ``proto`` that change from run to run.

    They are those from which values are computed that decide latencies, unless they also decide
    what is run, have values that are known or constant, or are no tensors of numbers. A runtime
    says which operators are ``sensitive`` to the signs of their first input.
    """
    graph, sketches = graph_of(proto), noted_sketches(proto)
    constant = {name for name, sketch in sketches.items() if sketch.is_constant}
    deciding = {*_deciding(graph, sensitive), *sketches} - constant
    if not deciding:
        return set()
    reached = _inputs_of(graph, deciding) - _inputs_of(graph, _choosing(graph))
    integers = [n for n in reached if isinstance(graph.types[n], TensorType)
                and not graph.types[n].floating and graph.types[n].dtype != "STRING"]  # fmt: skip
    unsafe = set(integers) - integer_ranges(graph, integers).keys()
    return {
        name
        for name in reached - known_values(proto).keys() - unsafe
        if not isinstance(graph.types[name], ContainerType)
        and ELEMENT_BITS.get(graph.types[name].dtype, 0) >= 8
    }


def _deciding(graph: Graph, sensitive: Callable[[str], bool]) -> Iterator[str]:
    """Values that decide the latency of a node; of a node with subgraphs, all that it reads."""
    for node in graph.nodes:
        first = graph.types.get(node.input[0]) if node.input else None
        sized = isinstance(first, TensorType) and first.dtype != "STRING"
        table_bytes = first.size_bytes if sized and first is not None else None
        if is_call(node):
            yield from decisive_values(node, graph.types)
            continue
        yield from (name for name, _ in dependent_inputs(node, table_bytes))
        if sensitive(node.op_type) and node.input:
            yield node.input[0]
        inner = [*inner_nodes(node)]
        if any(any(dependent_inputs(each)) or sensitive(each.op_type) for each in inner):
            yield from used_values(node)


def _choosing(graph: Graph) -> Iterator[str]:
    """Values that decide what is run: conditions, numbers of iterations, shapes."""
    loops = {id(node) for node in conditional_loops(graph.nodes)}
    for node in graph.nodes:
        yield from steered_values(steering_inputs(node), graph.types)
        for inner in (node, *inner_nodes(node)):
            if inner.op_type in ("If", "Loop"):
                yield from filter(None, inner.input[:2] if inner.op_type == "Loop" else inner.input)
        if id(node) in loops or any(True for _ in conditional_loops(inner_nodes(node))):
            yield from used_values(node)


def _inputs_of(graph: Graph, names: Iterable[str]) -> set[str]:
    """The inputs of ``graph`` from whose values ``names`` are computed."""
    makers = producers(graph.nodes)
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in makers and not operator_of(graph.nodes[makers[name]]).reads_shapes:
            waiting.extend(used_values(graph.nodes[makers[name]]))
    return seen.intersection(graph.inputs)
