"""PyTorch's instruments and ONNX probes: sequences of its own calls, timed as a whole.

Probes are the small models that every target measures: chains, reference kernels, and peaks; a
table of their operators is all that they need. Their work never changes, since caches hold their
latencies. Must not know what is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from onnx import helper

from bricks.backends.instruments import ROW_BYTES, Instruments
from bricks.backends.torch.call_sequences import (
    OPERATORS,
    CallSequence,
    OperatorCall,
    row_maxima,
)
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.backends.base import Binding, BoundModel


class TorchInstruments(Instruments):
    """The eviction read as a call of PyTorch."""

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """Return the maximum of each row."""
        return row_maxima(memory, ROW_BYTES)


def is_probe_model(proto: onnx.ModelProto) -> bool:
    """Whether all operators of an ONNX model are in the table of probes."""
    return all(not node.domain and node.op_type in OPERATORS for node in proto.graph.node)


class ProbeModel:
    """A probe with random weights; its inputs may lie in the shared region."""

    def __init__(self, proto: onnx.ModelProto, generator: torch.Generator) -> None:
        graph = graph_of(proto)
        self._calls: list[OperatorCall] = [
            (
                OPERATORS[node.op_type],
                {a.name: helper.get_attribute_value(a) for a in node.attribute},
                list(node.input),
                node.output[0],
            )
            for node in proto.graph.node
        ]
        self._weights = {
            name: torch.rand(tuple(tensor.dims), generator=generator)
            for name, tensor in graph.initializers.items()
        }
        self._inputs = {name: graph.types[name] for name in graph.inputs}

    def bind(self, binding: Binding, region: np.ndarray) -> CallSequence:
        """Bind the inputs; results are always new tensors."""
        values = dict(self._weights)
        for (name, type_), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            assert isinstance(type_, TensorType)
            values[name] = _input(type_, offset, region)
        return CallSequence(self._calls, values)


def _input(type_: TensorType, offset: int | None, region: np.ndarray) -> torch.Tensor:
    size = type_.size_bytes
    if offset is None or offset + size > len(region):
        return torch.full(type_.shape, 0.5)
    return torch.from_numpy(region[offset : offset + size].view(np.float32)).view(type_.shape)
