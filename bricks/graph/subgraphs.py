"""Subgraphs (of If, Loop, Scan): their constants moved out, and the iterations of their loops.

Cutting treats a node with its subgraphs as one node, so every value that a subgraph reads must be
visible from outside. The constants of subgraphs become initializers of the whole graph, which the
subgraphs capture; the semantics are unchanged.

In a model the condition follows from weights and inputs. With the synthetic values of a brick, a
loop would end at once or never. So a brick has the number of iterations that the model had: its
condition is still computed, but ignored. Must not know operators or runtimes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.errors import ModelError
from bricks.graph.model_metadata import noted_iterations
from bricks.graph.topology import all_nodes, default_domain, initializer_names, subgraphs


def hoist(graph: onnx.GraphProto) -> None:
    """Move the initializers of the subgraphs of ``graph`` among its own, in place.

    A moved initializer ``x`` is named ``x:0``, or the first of ``x:1``, … that is free.
    Raises ``ModelError`` for sparse initializers in a subgraph.
    """
    holders = [node for node in graph.node if holds_initializers(node)]
    if holders:
        move = _Move(graph)
        for node in holders:
            move.node(node, {})
        graph.initializer.extend(move.initializers)


def holds_initializers(node: onnx.NodeProto) -> bool:
    """Whether a subgraph of ``node`` has initializers of its own."""
    return any(
        graph.initializer or graph.sparse_initializer or any(map(holds_initializers, graph.node))
        for graph in subgraphs(node)
    )


class _Move:
    """Moves the initializers of subgraphs of nodes into the list ``initializers``."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.initializers: list[onnx.TensorProto] = []
        self._suffixes: dict[str, int] = {}  # all smaller suffixes are in use
        self._used_names = {*initializer_names(graph), *_names(graph)}
        for node in all_nodes(graph):
            self._used_names.update(node.input, node.output)
            for subgraph in subgraphs(node):
                self._used_names.update(_names(subgraph))

    def node(self, node: onnx.NodeProto, renames: Mapping[str, str]) -> None:
        """Rename the moved initializers in the inputs of ``node``."""
        for port, name in enumerate(node.input):
            node.input[port] = renames.get(name, name)
        for graph in subgraphs(node):
            self._graph(graph, renames)

    def _graph(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> None:
        if graph.sparse_initializer:
            raise ModelError(
                f"subgraph {graph.name!r} holds sparse initializers: make them dense first"
            )
        own = {i.name for i in graph.input} | {o for n in graph.node for o in n.output}
        renames = {old: new for old, new in outer.items() if old not in own}
        for tensor in graph.initializer:
            if tensor.name not in own:
                renames[tensor.name] = self._add(tensor)
        del graph.initializer[:]
        for node in graph.node:
            self.node(node, renames)
        for name in dict.fromkeys(output.name for output in graph.output):
            if name in renames:
                # A subgraph may not return a value of the outer scope directly.
                graph.node.append(onnx.helper.make_node("Identity", [renames[name]], [name]))

    def _add(self, tensor: onnx.TensorProto) -> str:
        # Always a new name: sibling subgraphs may use the old name for another value.
        suffix = self._suffixes.get(tensor.name, 0)
        while f"{tensor.name}:{suffix}" in self._used_names:
            suffix += 1
        name = f"{tensor.name}:{suffix}"
        self._suffixes[tensor.name] = suffix + 1
        self._used_names.add(name)
        moved = onnx.TensorProto()
        moved.CopyFrom(tensor)
        moved.name = name
        self.initializers.append(moved)
        return name


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output))


_TIMES, _COUNTED = "bricks.times", "bricks.counted"


def conditional_loops(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return the Loop nodes among ``nodes`` whose body decides on the number of iterations."""
    return [node for node in nodes if _is_loop(node) and not _passes_condition_on(body_of(node))]


def body_of(node: onnx.NodeProto) -> onnx.GraphProto:
    """Return the graph that the Loop ``node`` repeats."""
    body: onnx.GraphProto = next(a.g for a in node.attribute if a.name == "body")
    return body


def counter_name(node: onnx.NodeProto) -> str:
    """Return the name of the value that :func:`with_iteration_counters` adds for a Loop."""
    return f"{_COUNTED}/{first_output(node)}"


def first_output(node: onnx.NodeProto) -> str:
    """Return the name of the first named output of ``node``, which identifies a loop."""
    return str(next(name for name in node.output if name))


def with_iteration_counters(proto: onnx.ModelProto, loops: Collection[str]) -> onnx.ModelProto:
    """Return a copy of ``proto`` in which ``loops`` (first outputs) count their iterations.

    A counter (:func:`counter_name`) is a scan output: INT64, with one element for each iteration.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in copy.graph.node:
        if not _is_loop(node) or first_output(node) not in loops:
            continue
        body = body_of(node)
        number = f"{_COUNTED}/number"
        body.node.append(helper.make_node("Identity", [body.input[0].name], [number]))
        body.output.append(helper.make_tensor_value_info(number, onnx.TensorProto.INT64, []))
        # Trailing outputs may be omitted.
        node.output.extend([""] * (len(body.output) - 2 - len(node.output)))
        node.output.append(counter_name(node))
    return copy


def with_noted_iterations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with the iterations in its metadata; itself, if there are none."""
    times = noted_iterations(proto)
    if not times:
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in conditional_loops(copy.graph.node):
        if first_output(node) not in times:
            continue
        name = f"{_TIMES}/{first_output(node)}"
        count = np.array(times[first_output(node)], np.int64)
        copy.graph.initializer.append(numpy_helper.from_array(count, name))
        node.input[0] = name
        if len(node.input) > 1 and node.input[1]:
            condition = f"{name}/begin"
            copy.graph.initializer.append(numpy_helper.from_array(np.array(True), condition))
            node.input[1] = condition
        body = body_of(node)
        body.output[0].name = body.input[1].name
    return copy


def _is_loop(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a Loop with a complete body; a runtime reports an incomplete one."""
    if node.op_type != "Loop" or default_domain(node.domain) != "" or not any(node.output):
        return False
    bodies = [a.g for a in node.attribute if a.name == "body"]
    return bool(bodies) and len(bodies[0].input) >= 2 and len(bodies[0].output) >= 1


def _passes_condition_on(body: onnx.GraphProto) -> bool:
    """Whether the condition of a loop body never changes, or is always true."""
    name = body.output[0].name
    producers = {output: node for node in body.node for output in node.output}
    while name in producers and producers[name].op_type in ("Identity", "Cast"):
        name = producers[name].input[0]
    if name == body.input[1].name:
        return True
    producer = producers.get(name)
    if producer is None:  # an outer value, which no iteration changes
        return True
    return bool(producer.op_type == "Constant")
