"""PyTorch's own instruments: the same work as that of runtimes of ONNX models, in its own calls.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from bricks.backends.base import BoundModel
from bricks.backends.instruments import ROW_BYTES, Instruments
from bricks.backends.torch.calls import Attributes, Call, Calls, Tensors

# Layers, rows and width of the reference workload, and its key; and the length of the chain. Those
# of :mod:`bricks.backends.onnx_instruments`: latencies are compared with those in older caches.
_LAYERS, _ROWS, _WIDTH, _REFERENCE = 16, 32, 128, "r2-layers"
_CHAIN = 32


class TorchInstruments(Instruments):
    """``generator`` gives the source of random numbers for a key."""

    def __init__(self, generator: Callable[[str], torch.Generator]) -> None:
        self._generator = generator

    def reference(self) -> BoundModel:
        """Alternating matrix products and activations, on one weight."""
        weight = torch.rand((_WIDTH, _WIDTH), generator=self._generator(_REFERENCE))
        calls: list[Call] = []
        value = "in"
        for layer in range(_LAYERS):
            calls.append((_product, {}, (value, "weight"), f"product {layer}"))
            value = f"layer {layer}"
            calls.append((_activation, {}, (f"product {layer}",), value))
        return Calls(calls, {"in": torch.full((_ROWS, _WIDTH), 0.5), "weight": weight})

    def chain(self) -> BoundModel:
        """Activations of a single number."""
        calls: list[Call] = [(_activation, {}, (f"v{i}",), f"v{i + 1}") for i in range(_CHAIN)]
        return Calls(calls, {"v0": torch.full((1,), 0.5)})

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """The largest number of each row."""
        rows = torch.from_numpy(memory.view(np.float32)).view(-1, ROW_BYTES // 4)
        return Calls([(_largest, {}, ("rows",), "largest")], {"rows": rows})


def _product(x: Tensors, a: Attributes) -> torch.Tensor:
    return torch.mm(*x)


def _activation(x: Tensors, a: Attributes) -> torch.Tensor:
    return torch.relu(*x)


def _largest(x: Tensors, a: Attributes) -> torch.Tensor:
    return torch.amax(x[0], [1])
