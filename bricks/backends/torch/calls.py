"""A recorded call: its operator and arguments, as JSON and as PyTorch takes them, and made again.

Calls may come from another host, so they may only compute. Must not know how the values of a step
are named, nor where tensors come from.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import torch

from bricks.backends.torch.call_data import (
    GENERATOR,
    GET_STATE,
    PACKED,
    QUANTIZED,
    SET_STATE,
    is_indifferent,
    is_special,
)
from bricks.backends.torch.recomputation import HIDE, RECOMPUTATION, RECOMPUTE, Recomputation
from bricks.errors import BackendError, first_line
from bricks.graph.call import UNDEFINED, Call, Port, contiguous, leaves

_GENERATOR_OPERATORS = {GET_STATE: torch.get_rng_state, SET_STATE: torch.set_rng_state}

# Calls may come from another host: they may not read files or call other libraries.
_NAMESPACES = frozenset({"aten", "prims", "mkldnn", "inductor"})

# The end of an error about a call that reads an object of PyTorch.
PACKED_WEIGHTS = (
    "reads packed weights, an object of PyTorch whose values a recording cannot hold: give the"
    " module before it is quantised"
)

_NAMED: Mapping[str, Callable[[Any], Any]] = {
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
    "layout": lambda name: getattr(torch, name),
    "format": lambda name: getattr(torch, name),
    "float": float,
    "complex": lambda parts: complex(*parts),
    "undefined": lambda _: None,
}

_PLAIN = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "format",
}

# The namespace of kernels that PyTorch's compiler makes.
KERNEL = "kernel"

# More calls than recomputed layers make; a program of another host could name any number.
_MOST_RECOMPUTED = 1 << 16


def operator_called(namespace: str, operator: str) -> Any:
    """Return the operator called ``operator`` (``add.Tensor``) in ``namespace`` (``aten``).

    Raises :class:`BackendError` if PyTorch has none, or it may not be called.
    """
    if namespace == GENERATOR and operator in _GENERATOR_OPERATORS:
        return _GENERATOR_OPERATORS[operator]
    name, _, overload = operator.partition(".")
    if namespace not in _NAMESPACES:
        raise foreign(namespace, name)
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        found = getattr(packet, overload or "default")
    except (AttributeError, RuntimeError) as exc:
        raise BackendError(
            f"PyTorch {torch.__version__} has no operator {namespace}::{operator}:"
            f" {first_line(exc, 100)}; record the program again with this version"
        ) from exc
    if not isinstance(found, torch._ops.OpOverload):
        raise foreign(namespace, name)
    refuse_foreign(found)
    return found


def refuse_foreign(operator: Any) -> None:
    """Raise :class:`BackendError` for an operator of another library, or with a file name."""
    if operator.namespace == QUANTIZED and operator._opname in PACKED:
        return
    files = any(argument.name == "filename" for argument in operator._schema.arguments)
    if operator.namespace not in _NAMESPACES or files:
        raise foreign(operator.namespace, operator._opname)


def foreign(namespace: str, name: str) -> BackendError:
    """Return the error of an operator that may not be called."""
    if namespace == QUANTIZED:
        return BackendError(f"{namespace}::{name} {PACKED_WEIGHTS}")
    return BackendError(
        f"{namespace}::{name} cannot be replayed: use operators of PyTorch itself, or leave it out"
        " of the step"
    )


def resolved(written: Any, tensors: Sequence[Any], numbers: Sequence[float]) -> Any:
    """Return an argument of a call that was written as JSON; see ``graph.program``."""
    if isinstance(written, list):
        return [resolved(each, tensors, numbers) for each in written]
    if not isinstance(written, dict):
        return written
    ((kind, content),) = written.items()
    if kind == "t":
        return tensors[content]
    if kind == "s":
        return numbers[content]
    return _NAMED[kind](content)


def tensors_in(result: Any) -> Iterator[torch.Tensor | None]:
    """Yield the tensors in a result or argument, and None for each missing one."""
    if isinstance(result, torch.Tensor) or result is None:
        yield result
    elif isinstance(result, list | tuple):
        for each in result:
            if each is None or isinstance(each, torch.Tensor | list | tuple):
                yield from tensors_in(each)


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
            if not math.isfinite(value):
                return {"float": str(value)}
            if not self._indifferent or is_special(value):
                return value
            self.scalars.append(value)
            return {"s": len(self.scalars) - 1}
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


class ReplayedCall:
    """A recorded call with the names of its inputs and outputs, ready to be made on tensors.

    The last input of one that ``takes_numbers`` has them.
    """

    def __init__(self, call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.call, self.operator = call, _operator(call)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        positional, named = call.arguments
        arguments = leaves([*positional, *named.values()])
        self.takes_numbers = any(isinstance(leaf, dict) and "s" in leaf for leaf in arguments)

    def run(self, values: dict[str, Any]) -> int:
        """Make the call on ``values`` and add its outputs to them; nanoseconds of the operator."""
        tensors = [values[name] for name in self.inputs]
        numbers = tensors.pop().tolist() if self.takes_numbers else []
        written, written_named = self.call.arguments
        positional = [resolved(each, tensors, numbers) for each in written]
        named = {n: resolved(each, tensors, numbers) for n, each in written_named.items()}
        operator, clock = self.operator, time.perf_counter_ns
        start = clock()
        result = operator(*positional, **named)
        taken_ns = clock() - start
        returned = list(tensors_in(result))
        for number, name in enumerate(self.outputs):
            if number < len(returned):
                values[name] = returned[number]
            else:  # an argument that the call has written to
                values[name] = values[self.inputs[self.call.aliases[number]]]
        return taken_ns


def _operator(call: Call) -> Any:
    if call.namespace == KERNEL:
        from bricks.backends.torch.compiled_kernels import kept_kernel  # slow import

        kernel = kept_kernel(str(call.arguments[1].get("key")))

        def run(*arguments: Any, key: str) -> tuple[()]:
            kernel(*arguments)
            return ()

        return run
    if call.namespace == RECOMPUTATION and call.operator in (HIDE, RECOMPUTE):
        calls, reentrant = call.arguments[0]
        if not isinstance(calls, int) or not 0 <= calls <= _MOST_RECOMPUTED:
            raise foreign(call.namespace, f"{call.operator} of {calls!r} calls")
        return Recomputation(call.operator, calls, bool(reentrant))
    if call.namespace == QUANTIZED and call.operator in PACKED:
        return _PackedProduct(call.operator)
    return operator_called(call.namespace, call.operator)


class _PackedProduct:
    """A quantised product with the interface of an operator; its weights are packed once."""

    def __init__(self, operator: str) -> None:
        self._operator = getattr(torch.ops.quantized, operator).default
        self._parts: list[Any] = []
        self._packed: Any = None

    def __call__(self, x: Any, parts: list[Any], *others: Any) -> Any:
        """Run the product with weights that were unpacked to ``parts``: see ``call_arguments``."""
        if not (self._parts and all(map(is_, parts, self._parts))):
            weight, bias, scale, zero = self._parts = parts
            if isinstance(scale, float):
                quantised = torch._make_per_tensor_quantized_tensor(weight, scale, zero)
            else:
                quantised = torch._make_per_channel_quantized_tensor(weight, scale, zero, 0)
            self._packed = torch.ops.quantized.linear_prepack(quantised, bias)
        return self._operator(x, self._packed, *others)
