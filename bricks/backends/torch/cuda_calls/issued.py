"""One call of a program apart from its node: operator, arguments, results, phase, lifetimes.

Tensors among the arguments are operands, with the strides of their views; all numbers stand in
place. Must not know which calls CUDA makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bricks.graph.program import leaves


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor among the arguments of a call, by the name of its value.

    ``offset`` and ``strides`` are in elements; offsets are relative to the storage's first tensor
    in the call.
    """

    value: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IssuedCall:
    """A call of ``operator`` (``add_.Tensor``) in ``namespace`` (``aten``).

    ``positional`` and ``named`` are its arguments, JSON with operands in it. ``outputs`` are the
    names of its results, empty for undefined ones; ``shared`` are the values whose memory some
    outputs have. After the call, the memory of the values ``freed`` is free.
    """

    operator: str
    positional: Sequence[Any]
    outputs: tuple[str, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""
    freed: tuple[str, ...] = ()
    namespace: str = "aten"

    @property
    def operands(self) -> list[Operand]:
        """The tensors among the arguments, in order."""
        values = leaves([list(self.positional), [*self.named.values()]])
        return [each for each in values if isinstance(each, Operand)]

    @property
    def name(self) -> str:
        """The operator without its overload."""
        return self.operator.partition(".")[0]

    def renamed(self, values: Mapping[str, str]) -> IssuedCall:
        """Return the call with other values among its arguments."""

        def other(each: Any) -> Any:
            if isinstance(each, Operand) and each.value in values:
                return replace(each, value=values[each.value])
            return each

        return self.with_arguments(other)

    def with_arguments(self, change: Callable[[Any], Any]) -> IssuedCall:
        """Return the call with ``change`` of each value among its arguments."""
        positional = changed(list(self.positional), change)
        named = {name: changed(each, change) for name, each in self.named.items()}
        return replace(self, positional=positional, named=named)


def changed(arguments: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists and dicts of arguments with ``change`` of each value in them."""
    if isinstance(arguments, list):
        return [changed(each, change) for each in arguments]
    if isinstance(arguments, dict) and len(arguments) != 1:
        return {name: changed(each, change) for name, each in arguments.items()}
    return change(arguments)
