"""Operators and arguments of recorded calls, as PyTorch takes them.

Calls may come from another host, so they may only compute. Must not know how calls are written
down, nor what they are made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bricks.backends.torch.namespaces import (
    GENERATOR,
    GET_STATE,
    PACKED,
    QUANTIZED,
    SET_STATE,
)
from bricks.errors import BackendError, first_line

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
