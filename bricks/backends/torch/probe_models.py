"""The ONNX models that every target measures, as calls of PyTorch: chains, panel and peaks.

They tell what a call takes, how latencies change between machine states, and the best rates of this
runtime's kernels. They are few, so a table of their operators is all that is needed. Must not know
what they are run for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import torch
from onnx import helper
from torch.nn import functional

from bricks.backends.base import Binding
from bricks.backends.torch.calls import Attributes, Calls, Operator, Tensors
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of


def _convolution(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.conv2d(x[0], x[1], padding=a["pads"][0], groups=a.get("group", 1))


def _max_pool(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.max_pool2d(x[0], a["kernel_shape"], a["strides"])


def _average_pool(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.avg_pool2d(x[0], a["kernel_shape"], a["strides"])


_OPERATORS: Mapping[str, Operator] = {
    "MatMul": lambda x, a: torch.mm(*x),
    "Relu": lambda x, a: torch.relu(*x),
    "Identity": lambda x, a: torch.clone(*x),
    "Add": lambda x, a: torch.add(*x),
    "Mul": lambda x, a: torch.mul(*x),
    "Sigmoid": lambda x, a: torch.sigmoid(*x),
    "Softmax": lambda x, a: torch.softmax(x[0], -1),
    "Transpose": lambda x, a: x[0].permute(a["perm"]).contiguous(),
    "ReduceMean": lambda x, a: torch.mean(x[0], a["axes"], keepdim=True),
    "GlobalAveragePool": lambda x, a: torch.mean(x[0], (2, 3), keepdim=True),
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Conv": _convolution,
}


def is_probe_model(proto: onnx.ModelProto) -> bool:
    """Whether all operators of an ONNX model are in the table."""
    return all(not node.domain and node.op_type in _OPERATORS for node in proto.graph.node)


class ProbeModel:
    """A model with synthetic weights; its inputs may lie in the shared region."""

    def __init__(self, proto: onnx.ModelProto, generator: torch.Generator) -> None:
        self._graph = graph_of(proto)
        self._calls = [
            (
                _OPERATORS[node.op_type],
                {a.name: helper.get_attribute_value(a) for a in node.attribute},
                list(node.input),
                node.output[0],
            )
            for node in proto.graph.node
        ]
        self._weights = {
            name: torch.rand(tuple(tensor.dims), generator=generator)
            for name, tensor in self._graph.initializers.items()
        }

    def bind(self, binding: Binding, region: np.ndarray) -> Calls:
        """Bind the inputs; what it computes is always fresh memory."""
        values = dict(self._weights)
        for name, offset in zip(self._graph.inputs, binding.inputs, strict=True):
            values[name] = _input(self._graph, name, offset, region)
        return Calls(self._calls, values)


def _input(graph: Graph, name: str, offset: int | None, region: np.ndarray) -> torch.Tensor:
    type_ = graph.types[name]
    assert isinstance(type_, TensorType)
    size = type_.size_bytes
    if offset is None or offset + size > len(region):
        return torch.full(type_.shape, 0.5)
    return torch.from_numpy(region[offset : offset + size].view(np.float32)).view(type_.shape)
