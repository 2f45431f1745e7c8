"""The inputs whose values decide how long a run takes, and may change from run to run.

Processors learn values that come again and again: comparisons of a tree or a sort, signs, rows of a
table. A server sees fresh inputs, so runs get fresh values there. Where the same inputs decide what
is run (a branch, a number of iterations, a shape), only values may take turns with which the same
is run. Must not know how values are drawn or observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bricks.graph.model_metadata import known_values, noted_sketches
from bricks.graph.program import is_call
from bricks.graph.subgraphs import conditional_loops, counter_name
from bricks.graph.topology import (
    initializer_names,
    inner_nodes,
    producers,
    subgraphs,
    used_values,
)
from bricks.graph.types import ELEMENT_BITS, ContainerType, TensorType
from bricks.graph.view import graph_of
from bricks.operators.dependence import (
    decisive_values,
    dependent_inputs,
    steered_values,
    steering_inputs,
)
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph

# Lengths that data decide differ from run to run, as in a server; those of one rotation by so
# much, because all bricks behind have the length of one run.
_LENGTHS_DIFFER = 1 / 20


@dataclass(frozen=True, slots=True)
class Course:
    """The values of a run that show what is run, by name.

    ``chosen`` values are equal in runs that do the same: conditions, numbers of iterations, shapes.
    ``sized`` values have about equal shapes.
    """

    chosen: frozenset[str] = frozenset()
    sized: frozenset[str] = frozenset()

    def same(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
        """Whether two runs, with these values, do the same."""
        return all(np.array_equal(one[name], other[name]) for name in self.chosen) and all(
            _about_equal(one[name].shape, other[name].shape) for name in self.sized
        )


@dataclass(frozen=True, slots=True)
class RotatedInputs:
    """``names`` of inputs that change from run to run, and the ``course`` of runs with them.

    Those that are ``choosing`` decide what is run, those that are ``sizing`` lengths: sets of their
    values may take turns where the runs have the same course.
    """

    names: frozenset[str] = frozenset()
    choosing: frozenset[str] = frozenset()
    sizing: frozenset[str] = frozenset()
    course: Course = field(default_factory=Course)

    @property
    def unobserved(self) -> frozenset[str]:
        """Those that may change without observing a run: lengths vary, as the data do."""
        return self.names - self.choosing

    @property
    def bound(self) -> frozenset[str]:
        """Those of which runs must be observed first."""
        return self.names & (self.choosing | self.sizing)


def rotated_inputs(
    proto: onnx.ModelProto, sensitive: Callable[[str], bool] = lambda operator: False
) -> RotatedInputs:
    """Return the inputs of ``proto`` that change from run to run.

    They are those from which values are computed that decide latencies, unless their values are
    known or constant, no tensors of numbers, or decide what is run in a way that no value outside a
    subgraph shows. A runtime says which operators are ``sensitive`` to the signs of their first
    input.
    """
    graph, sketches = graph_of(proto), noted_sketches(proto)
    constant = {name for name, sketch in sketches.items() if sketch.is_constant}
    deciding = {*_deciding(graph, sensitive), *sketches} - constant
    if not deciding:
        return RotatedInputs()
    reached = _inputs_of(graph, deciding) - _inputs_of(graph, _hidden_choices(graph))
    integers = [n for n in reached if isinstance(graph.types[n], TensorType)
                and not graph.types[n].floating and graph.types[n].dtype != "STRING"]  # fmt: skip
    unsafe = set(integers) - integer_ranges(graph, integers).keys()
    rotated = {
        name
        for name in reached - known_values(proto).keys() - unsafe
        if not isinstance(graph.types[name], ContainerType)
        and ELEMENT_BITS.get(graph.types[name].dtype, 0) >= 8
    }
    chosen = {name: _inputs_of(graph, [name]) & rotated for name in set(_choosing(graph))}
    for loop in conditional_loops(graph.nodes):
        chosen[counter_name(loop)] = _inputs_of(graph, used_values(loop)) & rotated
    sized = {
        name: _inputs_of(graph, node.input) & rotated
        for node in graph.nodes
        if operator_of(node).sized_by_data and not subgraphs(node)
        for name in node.output
        if name and not isinstance(graph.types.get(name), ContainerType)
    }
    return RotatedInputs(
        frozenset(rotated),
        frozenset().union(*chosen.values()),
        frozenset().union(*sized.values()),
        Course(*(frozenset(n for n, reads in of.items() if reads) for of in (chosen, sized))),
    )


def _about_equal(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(abs(a - b) <= _LENGTHS_DIFFER * max(a, b) for a, b in pairs)


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
    """Values of ``graph`` that decide what is run: conditions, numbers of iterations, shapes."""
    own = _own_values(graph)
    for node in graph.nodes:
        steered = set(steered_values(steering_inputs(node), graph.types))
        for each in (node, *inner_nodes(node)):
            steered.update(_decisions(each))
        yield from steered & own


def _own_values(graph: Graph) -> set[str]:
    return {*graph.inputs, *graph.initializers, *producers(graph.nodes)}


def _decisions(node: onnx.NodeProto) -> Iterator[str]:
    """The condition of an If; the number of iterations and the first condition of a Loop."""
    if node.op_type in ("If", "Loop"):
        yield from filter(None, node.input[: 1 if node.op_type == "If" else 2])


def _hidden_choices(graph: Graph) -> Iterator[str]:
    """Values from which subgraphs compute what is run, which no run of ``graph`` shows."""
    own = _own_values(graph)
    for node in graph.nodes:
        inner = [*inner_nodes(node)]
        constants = {n for each in inner if each.op_type == "Constant" for n in each.output}
        constants |= {n for of in subgraphs(node) for n in initializer_names(of)}
        chooses = {n for each in inner for n in _decisions(each)}
        if conditional_loops(inner) or not chooses <= own | constants:
            yield from used_values(node)
    for name in _choosing(graph):
        if isinstance(graph.types.get(name), ContainerType):
            yield name


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
