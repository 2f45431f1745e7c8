"""Single operators as programs, with their sizes as options.

The functions follow the contract of :mod:`bricks.backends.torch.entry`. Inputs are uniform between
-1 and 1, as inputs of ONNX models are; weights are initialised as PyTorch does for the layer, so
that states of recurrent layers neither grow nor vanish. Must not know which sizes are of interest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_RECURRENT = {"vanilla": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class _Product(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply two matrices."""
        return torch.mm(a, b)


class _Sequence(nn.Module):
    """A recurrent layer that returns only the hidden states of all steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden states."""
        states: torch.Tensor = self.layer(x)[0]
        return states


def _drawn(*shape: int) -> torch.Tensor:
    return 2 * torch.rand(shape) - 1


def _program(module: nn.Module, *inputs: torch.Tensor) -> dict[str, Any]:
    return {"module": module.eval(), "inputs": inputs}


def convolution(
    batch: int, channels: int, height: int, width: int, filters: int, rows: int, columns: int,
    pad_rows: int, pad_columns: int, stride_rows: int, stride_columns: int,
) -> dict[str, Any]:  # fmt: skip
    """Return a program of one two-dimensional convolution without bias, of NCHW images."""
    layer = nn.Conv2d(
        channels, filters, (rows, columns), (stride_rows, stride_columns),
        (pad_rows, pad_columns), bias=False,
    )  # fmt: skip
    return _program(layer, _drawn(batch, channels, height, width))


def product(rows: int, columns: int, terms: int) -> dict[str, Any]:
    """Return a program of one matrix product, ``rows`` x ``terms`` by ``terms`` x ``columns``."""
    return _program(_Product(), _drawn(rows, terms), _drawn(terms, columns))


def recurrent(cell: str, hidden: int, batch: int, steps: int) -> dict[str, Any]:
    """Return a program of one recurrent layer: one direction, no bias, ``hidden`` wide."""
    options = {"nonlinearity": "relu"} if cell == "vanilla" else {}
    layer = _RECURRENT[cell](hidden, hidden, bias=False, **options)
    return _program(_Sequence(layer), _drawn(steps, batch, hidden))
