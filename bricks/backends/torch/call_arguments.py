"""The arguments of a recorded call as JSON, with the tensors and scalars among them.

Must not know how the values of a step are named.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from bricks.backends.torch.calling import PACKED_WEIGHTS, tensors_in
from bricks.backends.torch.scalars import is_indifferent, is_special
from bricks.errors import BackendError
from bricks.graph.call import UNDEFINED, Port, contiguous

_PLAIN = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}


class Values(Protocol):
    """The named values of a step."""

    def value(self, tensor: torch.Tensor, operator: str) -> str:
        """Return the name of the value that an argument of ``operator`` is."""

    def allocated(self, tensor: torch.Tensor) -> None:
        """Note a tensor, which may be a new one, before a call writes to it."""


class ArgumentWriter:
    """Writes the arguments of one call as JSON; collects its tensors and indifferent scalars."""

    def __init__(
        self, values: Values, schema: Sequence[Any], title: str, indifferent: bool
    ) -> None:
        self._values, self._title, self._indifferent = values, title, indifferent
        self._writes = {
            a.name for a in schema if a.alias_info is not None and a.alias_info.is_write
        }
        self._required = {a.name for a in schema if str(a.type) == "Tensor"}
        self._order = [a.name for a in schema if not a.kwarg_only]
        self.tensors: list[torch.Tensor] = []
        self.inputs: list[str] = []
        self.written: list[torch.Tensor] = []
        self.scalars: list[float] = []

    def positional(self, values: Sequence[Any]) -> list[Any]:
        """Write the positional arguments."""
        return [self._argument(name, v) for name, v in zip(self._order, values, strict=False)]

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Write the named arguments."""
        return {name: self._argument(name, value) for name, value in values.items()}

    def _argument(self, name: str, value: Any) -> Any:
        if name in self._writes:
            self._write([t for t in tensors_in(value) if t is not None])
        if value is None and name in self._required:
            return UNDEFINED
        return self._written(value)

    def of_kernel(self, types: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        """Write the arguments of a compiled kernel, which writes to those that are not const."""
        for type_, value in zip(types, arguments, strict=True):
            if isinstance(value, torch.Tensor) and not type_.startswith("const"):
                self._write([value])
        return [self._written(value) for value in arguments]

    def _write(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            self._values.allocated(tensor)
        self.written += tensors

    def _written(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.inputs.append(self._values.value(value, self._title))
            self.tensors.append(value)
            return {"t": len(self.inputs) - 1}
        if isinstance(value, list | tuple):
            return [self._written(item) for item in value]
        if isinstance(value, float):
            return self._number(value)
        if value is None or isinstance(value, bool | int | str):
            return value
        for kind, name in _PLAIN.items():
            if isinstance(value, kind):
                # A call does the same work on any GPU of a host: "cuda:0" is "cuda".
                return {name: str(value).removeprefix("torch.").partition(":")[0]}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, torch.ScriptObject):
            return self._written(self._packed_parts(value))
        raise BackendError(
            f"{self._title} takes an argument of type {type(value).__name__}, which cannot be"
            " replayed"
        )

    def _packed_parts(self, weights: torch.ScriptObject) -> list[Any]:
        """The int8 weight, bias, scale and zero point of a quantised product's packed weights.

        Scale and zero point are tensors with an element for each row, or numbers for all.
        """
        if not str(weights._type()).endswith(".LinearPackedParamsBase"):
            raise BackendError(f"{self._title} {PACKED_WEIGHTS}")
        weight, bias = torch.ops.quantized.linear_unpack(weights)
        if weight.dtype != torch.qint8:  # float16, which is not quantised
            raise BackendError(f"{self._title} {PACKED_WEIGHTS}")
        if weight.qscheme() == torch.per_tensor_affine:
            return [weight.int_repr(), bias, weight.q_scale(), weight.q_zero_point()]
        scales, zeros = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
        return [weight.int_repr(), bias, scales.float(), zeros.int()]

    def _number(self, value: float) -> Any:
        if not math.isfinite(value):
            return {"float": str(value)}
        if not self._indifferent or is_special(value):
            return value
        self.scalars.append(value)
        return {"s": len(self.scalars) - 1}

    def ports(self) -> tuple[Port, ...]:
        """Return storage, offset and strides of each tensor; empty where all are contiguous."""
        keys = [storage_key(tensor) for tensor in self.tensors]
        numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        first = dict.fromkeys(keys, sys.maxsize)
        for key, tensor in zip(keys, self.tensors, strict=True):
            first[key] = min(first[key], tensor.storage_offset())
        shared = len(numbers) < len(set(zip(keys, self.inputs, strict=True)))
        if not shared and all(t.stride() == contiguous(t.shape) for t in self.tensors):
            return ()
        return tuple(
            Port(numbers[key], tensor.storage_offset() - first[key], tensor.stride())
            for key, tensor in zip(keys, self.tensors, strict=True)
        )


def indifferent(func: Any) -> bool:
    """Whether the work of an operator does not depend on its scalar arguments."""
    return is_indifferent(func.namespace, func._opname)


def storage_key(tensor: torch.Tensor) -> int:
    """Return an identifier of a tensor's storage, unique as long as the storage lives."""
    return int(tensor.untyped_storage()._cdata)
