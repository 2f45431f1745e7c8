"""PyTorch's instruments and ONNX probes: sequences of its own calls, timed as a whole.

Instruments do the work of :mod:`bricks.backends.onnx_instruments`. Probes are the small models that
every target measures: chains, the probe set of machine states, and peaks; a table of their
operators is all that they need. Their work never changes, since caches hold their latencies. Must
not know what is measured.
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

from bricks.backends.base import Binding, BoundModel
from bricks.backends.instruments import ROW_BYTES, Instruments
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

Tensors = Sequence[torch.Tensor]
Attributes = Mapping[str, Any]
Operator = Callable[[Tensors, Attributes], torch.Tensor]

# An operator, its attributes, the names of its inputs, and the name of its output.
OperatorCall = tuple[Operator, Attributes, Sequence[str], str]

# Layers, rows and width of the reference workload, and its key; and the length of the chain.
_LAYERS, _ROWS, _WIDTH, _REFERENCE = 16, 32, 128, "r2-layers"
_CHAIN = 32


def _convolution(x: Tensors, a: Attributes) -> torch.Tensor:
    return functional.conv2d(x[0], x[1], padding=a["pads"][0], groups=a.get("group", 1))


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
    "MaxPool": lambda x, a: functional.max_pool2d(x[0], a["kernel_shape"], a["strides"]),
    "AveragePool": lambda x, a: functional.avg_pool2d(x[0], a["kernel_shape"], a["strides"]),
    "Conv": _convolution,
}
_PRODUCT, _RELU = _OPERATORS["MatMul"], _OPERATORS["Relu"]


class CallSequence:
    """Calls on ``values`` by name; the result of each is a new tensor."""

    def __init__(self, calls: Sequence[OperatorCall], values: Mapping[str, torch.Tensor]) -> None:
        self._calls, self._values = calls, values

    def sample(self) -> Sample:
        """Run all calls once; ``host_s`` is the time of the whole sequence."""
        values = dict(self._values)
        start = time.perf_counter_ns()
        for operator, attributes, inputs, output in self._calls:
            values[output] = operator([values[name] for name in inputs], attributes)
        return Sample((time.perf_counter_ns() - start) * 1e-9)


class TorchInstruments(Instruments):
    """Instruments whose random weights come from ``generator``, by key."""

    def __init__(self, generator: Callable[[str], torch.Generator]) -> None:
        self._generator = generator

    def reference(self) -> BoundModel:
        """Return alternating matrix products and activations, with one weight."""
        weight = torch.rand((_WIDTH, _WIDTH), generator=self._generator(_REFERENCE))
        calls: list[OperatorCall] = []
        value = "in"
        for layer in range(_LAYERS):
            calls.append((_PRODUCT, {}, (value, "weight"), f"product {layer}"))
            value = f"layer {layer}"
            calls.append((_RELU, {}, (f"product {layer}",), value))
        return CallSequence(calls, {"in": torch.full((_ROWS, _WIDTH), 0.5), "weight": weight})

    def chain(self) -> BoundModel:
        """Return a chain of activations of a single number."""
        calls: list[OperatorCall] = [(_RELU, {}, (f"v{i}",), f"v{i + 1}") for i in range(_CHAIN)]
        return CallSequence(calls, {"v0": torch.full((1,), 0.5)})

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """Return the maximum of each row."""
        rows = torch.from_numpy(memory.view(np.float32)).view(-1, ROW_BYTES // 4)
        call: OperatorCall = (lambda x, a: torch.amax(x[0], [1]), {}, ("rows",), "largest")
        return CallSequence([call], {"rows": rows})


def is_probe_model(proto: onnx.ModelProto) -> bool:
    """Whether all operators of an ONNX model are in the table of probes."""
    return all(not node.domain and node.op_type in _OPERATORS for node in proto.graph.node)


class ProbeModel:
    """A probe with random weights; its inputs may lie in the shared region."""

    def __init__(self, proto: onnx.ModelProto, generator: torch.Generator) -> None:
        graph = graph_of(proto)
        self._calls: list[OperatorCall] = [
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
