"""Models computed in bfloat16 in pieces, so that bricks pass on what kernels pass on.

With that precision, OpenVINO keeps values between kernels in bfloat16, though the source graph has
them in float32. A brick with float32 at its ends would convert, and run other kernels. So such a
value is stored by a Cast here, and every kernel that reads it has a Cast back of its own. OpenVINO
executes neither in a brick: it sees that they do what it does anyway.

Must not know groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx
from onnx import helper

from bricks.backends.openvino.execution import Kernel
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured

# How OpenVINO calls it.
BFLOAT16 = "bf16"

_FLOAT = "FLOAT"


def stored_in_bfloat16(graph: Graph, kernels: Sequence[Kernel]) -> tuple[Graph, list[Kernel]]:
    """``graph`` with Casts around what its ``kernels`` pass on in bfloat16, and its kernels.

    A Cast belongs to the kernel that makes the value, or that reads it. Outputs of the graph,
    and values that subgraphs read, stay as they are.
    """
    kernels_at: dict[int, set[int]] = {}  # by position, the kernels that a node is in
    for number, kernel in enumerate(kernels):
        for position in kernel.positions:
            kernels_at.setdefault(position, set()).add(number)
    stored = _stored(graph, kernels)
    types, nodes = dict(graph.types), list[onnx.NodeProto]()
    moved: dict[int, set[int]] = {}  # by position, the new positions of a node and its Casts
    makers = {name: i for i, node in enumerate(graph.nodes) for name in node.output}
    for position, node in enumerate(graph.nodes):
        begin = len(nodes)
        own = {}
        for name in dict.fromkeys(node.input):
            inside = kernels_at.get(makers.get(name, -1), set())
            if name in stored and inside.isdisjoint(kernels_at.get(position, ())):
                own[name] = f"{name}:{position}"
                types[own[name]] = types[name]
                nodes.append(_cast(_stored_name(name), own[name], _FLOAT))
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [own.get(name, name) for name in node.input]
        nodes.append(copy)
        for name in node.output:
            if name in stored:
                types[_stored_name(name)] = TensorType("BFLOAT16", types[name].shape)
                nodes.append(_cast(name, _stored_name(name), "BFLOAT16"))
        moved[position] = set(range(begin, len(nodes)))
    found = [
        replace(kernel, positions=frozenset(n for i in kernel.positions for n in moved[i]))
        for kernel in kernels
    ]
    return replace(graph, nodes=tuple(nodes), types=types), found


def stores(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a Cast of what the node before it makes to bfloat16."""
    return node.op_type == "Cast" and node.output[0] == _stored_name(node.input[0])


def _stored(graph: Graph, kernels: Sequence[Kernel]) -> set[str]:
    """The values that are in bfloat16 where they are made, and that others read.

    What a node makes that vanishes is as what it reads.
    """
    kept = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    last = {i: kernel for kernel in kernels if not kernel.constant for i in kernel.positions}
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.input:
            readers.setdefault(name, set()).add(position)
    found: set[str] = set()
    for position, node in enumerate(graph.nodes):
        kernel = last.get(position)
        inside = kernel.positions if kernel else frozenset()
        for output, name in enumerate(node.output):
            type_ = graph.types.get(name)
            if not isinstance(type_, TensorType) or type_.dtype != _FLOAT or name in kept:
                continue
            if kernel:
                alike = kernel.stored[output if output < len(kernel.stored) else 0] == BFLOAT16
            else:
                alike = not found.isdisjoint(node.input)
            if alike and not readers.get(name, set()) <= inside:
                found.add(name)
    return found


def _stored_name(name: str) -> str:
    return f"{name}:stored"


def _cast(source: str, target: str, dtype: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=onnx.TensorProto.DataType.Value(dtype))
