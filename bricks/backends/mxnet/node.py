"""A node to translate, and the registry of translations, which the modules of these share.

Must not know graphs or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import onnx

from bricks.errors import BackendError
from bricks.graph.topology import label
from bricks.graph.types import TensorType

Symbol = Any  # an mx.sym.Symbol: the package publishes no types

# Stands for minus infinity in maxima: MXNet pads with finite numbers only.
MIN = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A node to translate: its proto, the symbols of its inputs (None: omitted), and their types.

    ``constants`` holds the known values of inputs, ``outputs`` the types of outputs. Its symbols
    in MXNet have ``name`` or begin with it.
    """

    name: str
    proto: onnx.NodeProto
    symbols: Sequence[Symbol | None]
    types: Sequence[TensorType | None]
    constants: Sequence[np.ndarray | None]
    outputs: Sequence[TensorType]
    opset: int

    def apply(self, function: Callable[..., Symbol], *others: Symbol, **attributes: Any) -> Symbol:
        """MXNet's ``function`` of the first input and ``others``, under the node's name."""
        return function(self.symbols[0], *others, name=self.name, **attributes)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, texts as ``str``."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, index: int) -> bool:
        """Whether there is an input at ``index``."""
        return index < len(self.symbols) and self.symbols[index] is not None

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        type_ = self.types[index]
        assert type_ is not None
        return type_.shape

    def constant(self, index: int, attribute: str = "", default: Any = None) -> Any:
        """A constant which is an attribute in older opsets and an input in newer ones.

        Raises :class:`BackendError` if the value of the input is unknown.
        """
        stated = self.attribute(attribute)
        if stated is not None:
            return stated
        if not self.has(index):
            return default
        values = self.constants[index]
        if values is None:
            raise self.refused(f"its input {index} is computed, and MXNet wants it fixed")
        return values.tolist()

    def refused(self, why: str) -> BackendError:
        """The error that says why MXNet cannot run the node."""
        return BackendError(
            f"MXNet cannot run {label(self.proto)}: {why}; choose --runtime onnxruntime"
        )


Translate = Callable[[SourceNode], "Symbol | list[Symbol]"]
OPERATORS: dict[str, Translate] = {}


def operator(*names: str) -> Callable[[Translate], Translate]:
    """Register the function that translates the ONNX operators called ``names``."""

    def register(translate: Translate) -> Translate:
        for name in names:
            OPERATORS[name] = translate
        return translate

    return register


def of_rank(symbol: Symbol, shape: tuple[int, ...], rank: int, name: str) -> Symbol:
    """``symbol`` with leading axes of one element up to ``rank``: MXNet adds none to broadcast."""
    if len(shape) == rank or (not shape and rank == 1):
        return symbol
    return mx.sym.reshape(symbol, shape=(1,) * (rank - len(shape)) + shape, name=name)


def number(value: Any, otherwise: float) -> float:
    """``value``, of one element, as a float; ``otherwise`` if it is not finite."""
    value = float(np.asarray(value).reshape(()))
    return value if np.isfinite(value) else otherwise
