"""Calls of a program for a GPU that run on the host: optimisers count their steps there.

Recordings of a GPU say which calls these are. Programs that were recorded on a processor do not,
nor do those of an earlier version. Must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
from onnx import helper

from bricks.graph.call import ON_HOST, OPTIMIZER, leaves
from bricks.graph.program import PHASE, call_of
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of

# PyTorch keeps counts of steps on the host, in tensors of one number, unless an optimiser is told
# otherwise. It adds a number to each, or a tensor of the host to all; fused optimisers, whose
# counts are on the GPU, add a number to all.
_ADDS_NUMBER, _ADDS_TENSOR = "add_.Tensor", "_foreach_add_.Tensor"


def note_host_calls(proto: onnx.ModelProto) -> int:
    """Note in a program which calls run on the host of its GPU; return how many."""
    types = graph_of(proto).types
    numbers = {n for n, of in types.items() if of == TensorType("FLOAT", ())}
    made, host = set[str](), set[str]()
    for node in proto.graph.node:
        inputs = _tensors(node)
        if numbers.issuperset(inputs) and not made & {*inputs[:1]} and _counts(node, inputs):
            host.update(inputs)
        made.update(node.output)
    noted = list(_on_host(proto.graph.node, host))
    for node in noted:
        node.attribute.append(helper.make_attribute(ON_HOST, 1))
    return len(noted)


def _tensors(node: onnx.NodeProto) -> Sequence[str]:
    arguments = leaves(list(call_of(node).arguments))
    return [node.input[of["t"]] for of in arguments if isinstance(of, dict) and "t" in of]


def _counts(node: onnx.NodeProto, inputs: Sequence[str]) -> bool:
    """Whether a call of an optimiser adds one to counts of steps."""
    if not any(of.key == PHASE and of.value == OPTIMIZER for of in node.metadata_props):
        return False
    return node.op_type == _ADDS_TENSOR or (node.op_type == _ADDS_NUMBER and len(inputs) == 1)


def _on_host(nodes: Sequence[onnx.NodeProto], host: set[str]) -> Iterator[onnx.NodeProto]:
    """The calls whose tensors are all on the host, or whose results are; adds their results."""
    for node in nodes:
        inputs, outputs = _tensors(node), [name for name in node.output if name]
        if inputs and (host.issuperset(inputs) or (outputs and host.issuperset(outputs))):
            host.update(outputs)
            yield node
