"""Counterparts of recurrent layers, whose gates PyTorch has in another order.

See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

from typing import Any

import torch

from bricks.backends.torch.counterparts.node import TorchNode, operator

# The positions in ONNX of PyTorch's gates.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@operator("LSTM", "GRU", "RNN")
def recurrent(n: TorchNode) -> tuple[torch.Tensor | None, ...]:
    """Run a layer in one or both directions: all hidden states, and the last states."""
    compute = _function(n)
    x = n.tensor(0)
    directions = n.tensor(1).shape[0]
    parameters = n.once("parameters", lambda: _parameters(n, directions))
    states = [_state(n, port, x, directions) for port in ((5, 6) if n.operator == "LSTM" else (5,))]
    initial = states if n.operator == "LSTM" else states[0]
    hidden, *last = compute(
        x, initial, parameters, n.has(3), 1, 0.0, False, directions == 2, False
    )  # fmt: skip
    steps, batch = x.shape[:2]
    split = hidden.reshape(steps, batch, directions, -1).permute(0, 2, 1, 3)
    return split, *last


def _function(n: TorchNode) -> Any:
    """Return PyTorch's function, if it computes the same."""
    n.default_only(layout=0, input_forget=0, clip=None)
    if n.attribute("direction", "forward") == "reverse":
        raise n.refused("direction reverse")
    if n.has(4):
        raise n.refused("lengths of sequences")
    if n.has(7):
        raise n.refused("peepholes")
    if n.operator == "GRU" and not n.attribute("linear_before_reset", 0):
        raise n.refused("linear_before_reset 0")
    usual = _USUAL[n.operator]
    activations = n.attribute("activations", usual)
    if n.operator == "RNN" and set(activations) == {"Relu"}:
        return torch.rnn_relu
    if any(name != usual[k % len(usual)] for k, name in enumerate(activations)):
        raise n.refused("other activations than usual")
    return {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[n.operator]


def _parameters(n: TorchNode, directions: int) -> list[torch.Tensor]:
    """Return weights, and biases if the node has any, of each direction."""
    parameters = []
    for k in range(directions):
        parameters += [_in_order(n, n.tensor(port)[k]) for port in (1, 2)]
        if n.has(3):
            parameters += [_in_order(n, half) for half in n.tensor(3)[k].chunk(2)]
    return parameters


def _in_order(n: TorchNode, rows: torch.Tensor) -> torch.Tensor:
    """Permute the rows of the gates to PyTorch's order."""
    gates = rows.chunk(len(_GATES[n.operator]))
    return torch.cat([gates[k] for k in _GATES[n.operator]])


def _state(n: TorchNode, port: int, x: torch.Tensor, directions: int) -> torch.Tensor:
    """Return the initial state, zero by default."""
    if n.has(port):
        return n.tensor(port)
    shape = directions, x.shape[1], n.tensor(2).shape[-1]
    zeros: torch.Tensor = n.once("zeros", lambda: torch.zeros(shape, dtype=x.dtype))
    return zeros
