"""The arguments of a counterpart (attributes, inputs of an ONNX node) and the registry of them.

Must not know graphs or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch

from bricks.errors import BackendError
from bricks.graph.program import TORCH_DTYPES

# A tensor, or an array of numbers that are the same in each step, such as shapes and axes.
Value: TypeAlias = torch.Tensor | np.ndarray


@dataclass(frozen=True, slots=True)
class TorchNode:
    """A node to compute: its attributes (strings as ``str``), and its inputs (None: omitted).

    ``outputs`` is whether each output is read; ``opset`` the version of the operators. ``constant``
    converts fixed numbers to a tensor that is kept for all steps, and ``once`` keeps by a name the
    result of a function in the first step.
    """

    operator: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Value | None]
    outputs: Sequence[bool]
    opset: int
    constant: Callable[[np.ndarray], torch.Tensor]
    once: Callable[[str, Callable[[], Any]], Any]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        return self.attributes.get(name, default)

    def has(self, index: int) -> bool:
        """Whether the input at ``index`` exists."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def tensor(self, index: int = 0) -> torch.Tensor:
        """Return the input at ``index`` as a tensor."""
        value = self.inputs[index]
        assert value is not None, f"{self.operator} has no input {index}"
        return self.constant(value) if isinstance(value, np.ndarray) else value

    def tensors(self) -> list[torch.Tensor]:
        """Return all inputs as tensors."""
        return [self.tensor(index) for index in range(len(self.inputs))]

    def optional(self, index: int) -> torch.Tensor | None:
        """Return the input at ``index`` as a tensor; None if it is omitted."""
        return self.tensor(index) if self.has(index) else None

    def operand(self, index: int) -> Any:
        """As :meth:`tensor`, but a fixed scalar as a Python number."""
        value = self.inputs[index]
        plain = isinstance(value, np.ndarray) and value.ndim == 0
        return value.item() if plain and value is not None else self.tensor(index)

    def numbers(self, index: int, attribute: str = "", default: Any = None) -> Any:
        """Return fixed numbers that are an attribute in older opsets and an input in newer ones.

        Raises :class:`BackendError` if the input is computed in each step.
        """
        if attribute in self.attributes:
            return self.attributes[attribute]
        if not self.has(index):
            return default
        value = self.inputs[index]
        if not isinstance(value, np.ndarray):
            raise self.refused(f"input {index} is computed, and PyTorch wants it fixed")
        return value.tolist()

    def default_only(self, **defaults: Any) -> None:
        """Refuse the node if an attribute has another value than this default."""
        for name, default in defaults.items():
            if self.attribute(name, default) != default:
                raise self.refused(f"{name} {self.attribute(name)}")

    def refused(self, why: str = "") -> BackendError:
        """Return the error for a node without a counterpart; ``why`` names the cause."""
        return no_counterpart(self.operator, why)


def no_counterpart(operator: str, why: str = "") -> BackendError:
    """Return the error for an operator without a counterpart, with the cause."""
    cause = f" with {why}" if why else ""
    return BackendError(f"no counterpart of {operator}{cause} in PyTorch is known")


Compute = Callable[[TorchNode], "Value | Sequence[Value | None]"]
OPERATORS: dict[str, Compute] = {}


def operator(*names: str) -> Callable[[Compute], Compute]:
    """Register the function that computes the ONNX operators called ``names``."""

    def register(compute: Compute) -> Compute:
        OPERATORS.update(dict.fromkeys(names, compute))
        return compute

    return register


def dtype_of(n: TorchNode, number: int) -> torch.dtype:
    """Return PyTorch's type for an element type of ONNX."""
    name = onnx.TensorProto.DataType.Name(number)
    if name not in TORCH_DTYPES:
        raise n.refused(f"type {name}")
    dtype: torch.dtype = getattr(torch, TORCH_DTYPES[name])
    return dtype
