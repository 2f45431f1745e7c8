"""Conditional loops: a run of a model counts their iterations, and its bricks repeat as many.

In a model the condition follows from weights and inputs. With the synthetic values of a brick, a
loop would end at once or never. So a brick has the number of iterations that the model had: its
condition is still computed, but ignored. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.graph.model_metadata import noted_iterations
from bricks.graph.topology import default_domain

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
