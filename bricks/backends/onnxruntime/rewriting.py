"""Weights that ONNX Runtime rewrites when it fuses nodes, before it reorders or packs them.

It folds a normalisation or a scale into the convolution before it: the new weight stays in memory
until the graph is optimised. Rewritten weights follow from the source graph, not from the executed
graph, which this module must not know.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bricks.graph.topology import default_domain, used_values

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph


def rewritten_bytes(graph: Graph) -> int:
    """Bytes of the weights of ``graph``, a source graph, that fusions rewrite."""
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.nodes:
        for name in used_values(node):
            readers[name].append(node)
    total = 0
    for node in graph.nodes:
        if default_domain(node.domain) or node.op_type not in ("Conv", "ConvTranspose"):
            continue
        weight, result = node.input[1], node.output[0]
        if weight not in graph.initializers or result in graph.outputs:
            continue
        after = readers[result]
        if len(after) == 1 and _folds(after[0], node, graph):
            total += graph.types[weight].size_bytes
    return total


def _folds(after: onnx.NodeProto, node: onnx.NodeProto, graph: Graph) -> bool:
    """Whether ``after``, the only reader of ``node``, becomes a part of it."""
    if default_domain(after.domain):
        return False
    if after.op_type == "BatchNormalization":
        return all(name in graph.initializers for name in after.input[1:])
    scale = after.input[1] if len(after.input) > 1 else ""
    return after.op_type == "Mul" and node.op_type == "Conv" and scale in graph.initializers
