"""Sequences of PyTorch's own calls, timed as a whole, among them those of its instruments.

Must not know what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bricks.units.sample import Sample

Tensors = Sequence[torch.Tensor]
Attributes = Mapping[str, Any]
Operator = Callable[[Tensors, Attributes], torch.Tensor]

# An operator, its attributes, the names of its inputs, and the name of its output.
OperatorCall = tuple[Operator, Attributes, Sequence[str], str]

# Layers, rows and width of the reference workload, and its key; and the length of the chain.
_LAYERS, _ROWS, _WIDTH, REFERENCE = 16, 32, 128, "r2-layers"
CHAIN = 32


OPERATORS: Mapping[str, Operator] = {
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
    "Conv": lambda x, a: functional.conv2d(
        x[0], x[1], padding=a["pads"][0], groups=a.get("group", 1)
    ),
}
_PRODUCT, _RELU = OPERATORS["MatMul"], OPERATORS["Relu"]


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


def reference_workload(generator: torch.Generator) -> CallSequence:
    """Return alternating matrix products and activations, with one weight."""
    weight = torch.rand((_WIDTH, _WIDTH), generator=generator)
    calls: list[OperatorCall] = []
    value = "in"
    for layer in range(_LAYERS):
        calls.append((_PRODUCT, {}, (value, "weight"), f"product {layer}"))
        value = f"layer {layer}"
        calls.append((_RELU, {}, (f"product {layer}",), value))
    return CallSequence(calls, {"in": torch.full((_ROWS, _WIDTH), 0.5), "weight": weight})


def chain_of(length: int) -> CallSequence:
    """Return a chain of ``length`` activations of a single number."""
    calls: list[OperatorCall] = [(_RELU, {}, (f"v{i}",), f"v{i + 1}") for i in range(length)]
    return CallSequence(calls, {"v0": torch.full((1,), 0.5)})


def row_maxima(memory: np.ndarray, row_bytes: int) -> CallSequence:
    """Return the maximum of each row of ``memory``, which reads all of it."""
    rows = torch.from_numpy(memory.view(np.float32)).view(-1, row_bytes // 4)
    call: OperatorCall = (lambda x, a: torch.amax(x[0], [1]), {}, ("rows",), "largest")
    return CallSequence([call], {"rows": rows})
