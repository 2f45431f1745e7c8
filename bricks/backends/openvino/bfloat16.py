"""Models computed in bfloat16 in pieces, so that bricks pass on the values that kernels pass on.

With that precision, OpenVINO keeps values between kernels in bfloat16, though the source graph has
them in float32. A brick with float32 at its boundary would convert, and run other kernels. So such
a value is stored by a Cast here, and every kernel that reads it has a Cast back of its own.
OpenVINO executes neither in a brick: the kernels convert anyway.

Must not know groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, producers, renamed

if TYPE_CHECKING:
    from bricks.backends.openvino.execution import CompiledKernel
    from bricks.graph.graph import Graph

# OpenVINO's name of the precision.
BFLOAT16 = "bf16"

_FLOAT = "FLOAT"


def with_bfloat16_casts(
    graph: Graph, kernels: Sequence[CompiledKernel]
) -> tuple[Graph, list[CompiledKernel]]:
    """``graph`` with Casts around the values that ``kernels`` pass on in bfloat16, and its kernels.

    A Cast belongs to the kernel that makes the value, or that reads it. Outputs of the graph,
    and values that subgraphs read, stay as they are.
    """
    kernels_at: dict[int, set[int]] = {}  # numbers of the kernels with a node, by its position
    for number, kernel in enumerate(kernels):
        for position in kernel.positions:
            kernels_at.setdefault(position, set()).add(number)
    stored = _stored(graph, kernels)
    types, nodes = dict(graph.types), list[onnx.NodeProto]()
    new_positions: dict[int, set[int]] = {}  # of a node and its Casts, by the old position
    makers = producers(graph.nodes)
    for position, node in enumerate(graph.nodes):
        begin = len(nodes)
        names = {}
        for name in dict.fromkeys(node.input):
            inside = kernels_at.get(makers.get(name, -1), set())
            if name in stored and inside.isdisjoint(kernels_at.get(position, ())):
                names[name] = f"{name}:{position}"
                types[names[name]] = types[name]
                nodes.append(_cast(_stored_name(name), names[name], _FLOAT))
        nodes.append(renamed(node, names))
        for name in node.output:
            if name in stored:
                types[_stored_name(name)] = TensorType("BFLOAT16", types[name].shape)
                nodes.append(_cast(name, _stored_name(name), "BFLOAT16"))
        new_positions[position] = set(range(begin, len(nodes)))
    moved = [
        replace(kernel, positions=frozenset(n for i in kernel.positions for n in new_positions[i]))
        for kernel in kernels
    ]
    return replace(graph, nodes=tuple(nodes), types=types), moved


def is_storing_cast(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a Cast to bfloat16 that :func:`with_bfloat16_casts` has added."""
    return node.op_type == "Cast" and node.output[0] == _stored_name(node.input[0])


def _stored(graph: Graph, kernels: Sequence[CompiledKernel]) -> set[str]:
    """Values whose kernel makes them in bfloat16, and that nodes outside of it read.

    Outputs of a removed node have the type of its input.
    """
    kept = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    last = {i: kernel for kernel in kernels if not kernel.constant for i in kernel.positions}
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.input:
            readers.setdefault(name, set()).add(position)
    stored: set[str] = set()
    for position, node in enumerate(graph.nodes):
        kernel = last.get(position)
        inside = kernel.positions if kernel else frozenset()
        for output, name in enumerate(node.output):
            type_ = graph.types.get(name)
            if not isinstance(type_, TensorType) or type_.dtype != _FLOAT or name in kept:
                continue
            if kernel:
                precisions = kernel.output_precisions
                in_bfloat16 = precisions[output if output < len(precisions) else 0] == BFLOAT16
            else:
                in_bfloat16 = not stored.isdisjoint(node.input)
            if in_bfloat16 and not readers.get(name, set()) <= inside:
                stored.add(name)
    return stored


def _stored_name(name: str) -> str:
    return f"{name}:stored"


def _cast(source: str, target: str, dtype: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=onnx.TensorProto.DataType.Value(dtype))
