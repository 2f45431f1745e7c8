"""Conditional loops: their iterations are counted in a model, and repeated by its bricks.

In a model the condition follows from its weights and inputs; a brick has others, and would end at
once or never. So the iterations of a run of the model are counted, and a brick is made to run as
many: its condition is computed as ever, and not asked. Must not know runtimes.
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
    """The loops among ``nodes`` whose body decides on the number of iterations."""
    return [node for node in nodes if _is_loop(node) and not _passes_condition_on(body_of(node))]


def body_of(node: onnx.NodeProto) -> onnx.GraphProto:
    """The graph that a loop repeats."""
    body: onnx.GraphProto = next(a.g for a in node.attribute if a.name == "body")
    return body


def counter(node: onnx.NodeProto) -> str:
    """The name of the value of :func:`counting` that has an element for each iteration."""
    return f"{_COUNTED}/{first_output(node)}"


def first_output(node: onnx.NodeProto) -> str:
    """The name by which a loop is known: that of the first output that it has."""
    return str(next(name for name in node.output if name))


def counting(proto: onnx.ModelProto, loops: Collection[str]) -> onnx.ModelProto:
    """A copy of ``proto`` in which ``loops``, by their first outputs, have a :func:`counter`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in copy.graph.node:
        if not _is_loop(node) or first_output(node) not in loops:
            continue
        body = body_of(node)
        number = f"{_COUNTED}/number"
        body.node.append(helper.make_node("Identity", [body.input[0].name], [number]))
        body.output.append(helper.make_tensor_value_info(number, onnx.TensorProto.INT64, []))
        # Outputs at the end may have been left out.
        node.output.extend([""] * (len(body.output) - 2 - len(node.output)))
        node.output.append(counter(node))
    return copy


def running_as_noted(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto``, whose loops run as often as its metadata says; itself, if these say nothing."""
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
            begins = f"{name}/begin"
            copy.graph.initializer.append(numpy_helper.from_array(np.array(True), begins))
            node.input[1] = begins
        body = body_of(node)
        body.output[0].name = body.input[1].name
    return copy


def _is_loop(node: onnx.NodeProto) -> bool:
    """Whether a loop can be run; the runtime says what a broken one lacks."""
    if node.op_type != "Loop" or default_domain(node.domain) != "" or not any(node.output):
        return False
    bodies = [a.g for a in node.attribute if a.name == "body"]
    return bool(bodies) and len(bodies[0].input) >= 2 and len(bodies[0].output) >= 1


def _passes_condition_on(body: onnx.GraphProto) -> bool:
    """Whether the condition is never changed, or always true."""
    name = body.output[0].name
    makers = {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    maker = makers.get(name)
    if maker is None:  # a value from outside, which no iteration changes
        return True
    return bool(maker.op_type == "Constant")
