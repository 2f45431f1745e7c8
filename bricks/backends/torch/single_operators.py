"""The small ONNX models that are run beside bricks: reference workload, probes, peaks.

They tell the state of the machine and its best rates with this runtime's kernels. They are few, so
a table of their operators is all that is needed. Must not know what they are run for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from torch.nn import functional

from bricks.backends.base import Placement
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

Tensors = Sequence[torch.Tensor]
Attributes = Mapping[str, Any]


def _convolution(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.conv2d(x[0], x[1], padding=a["pads"][0], groups=a.get("group", 1))


def _max_pool(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.max_pool2d(x[0], a["kernel_shape"], a["strides"])


def _average_pool(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.avg_pool2d(x[0], a["kernel_shape"], a["strides"])


_OPERATORS: Mapping[str, Callable[[Tensors, Attributes], torch.Tensor]] = {
    "MatMul": lambda x, a: torch.mm(*x),
    "Relu": lambda x, a: torch.relu(*x),
    "Identity": lambda x, a: torch.clone(*x),
    "Add": lambda x, a: torch.add(*x),
    "Mul": lambda x, a: torch.mul(*x),
    "Sigmoid": lambda x, a: torch.sigmoid(*x),
    "Softmax": lambda x, a: torch.softmax(x[0], -1),
    "Transpose": lambda x, a: x[0].permute(a["perm"]).contiguous(),
    "ReduceMean": lambda x, a: torch.mean(x[0], a["axes"], keepdim=True),
    "ReduceMax": lambda x, a: torch.amax(x[0], a["axes"]),
    "GlobalAveragePool": lambda x, a: torch.mean(x[0], (2, 3), keepdim=True),
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Conv": _convolution,
}


def is_companion(proto: onnx.ModelProto) -> bool:
    """Whether all operators of an ONNX model are among those of companions."""
    return all(not node.domain and node.op_type in _OPERATORS for node in proto.graph.node)


class Companion:
    """A companion with synthetic weights; it may be placed in the shared region."""

    def __init__(self, proto: onnx.ModelProto, generator: torch.Generator) -> None:
        self._graph = graph_of(proto)
        self._steps = [
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

    def place(self, placement: Placement, region: np.ndarray) -> PlacedCompanion:
        """Bind the inputs; what it computes is always fresh memory."""
        values = dict(self._weights)
        for name, offset in zip(self._graph.inputs, placement.inputs, strict=True):
            values[name] = _input(self._graph, name, offset, region)
        return PlacedCompanion(self._steps, values)


class PlacedCompanion:
    """A companion with its inputs."""

    def __init__(self, steps: Sequence[Any], values: Mapping[str, torch.Tensor]) -> None:
        self._steps, self._values = steps, values

    def sample(self) -> Sample:
        """Run once; what it took."""
        values = dict(self._values)
        start = time.perf_counter_ns()
        for operator, attributes, inputs, output in self._steps:
            values[output] = operator([values[name] for name in inputs], attributes)
        return Sample((time.perf_counter_ns() - start) * 1e-9)


def _input(graph: Graph, name: str, offset: int | None, region: np.ndarray) -> torch.Tensor:
    type_ = graph.types[name]
    assert isinstance(type_, TensorType)
    size = type_.size_bytes
    if offset is None or offset + size > len(region):
        return torch.full(type_.shape, 0.5)
    return torch.from_numpy(region[offset : offset + size].view(np.float32)).view(type_.shape)
