"""Signatures of PyTorch's operators: their arguments in order, with defaults.

A recorded call has the arguments that were given, a trace has all of them. ``signatures.json.xz``
is written by ``tools/write_signatures.py``. Must not know traces.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_TENSORS = ("Tensor", "Optional[Tensor]")
_TENSOR_LISTS = ("List[Tensor]", "List[Optional[Tensor]]", "Optional[List[Optional[Tensor]]]")
# Types that do not change the work of a call on one device.
_PLACES = ("Device", "Optional[Device]", "Optional[Generator]", "Generator", "Stream")
_TEXTS = ("str", "Optional[str]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operator; ``default`` is meaningless for a ``required`` one."""

    name: str
    type: str
    by_name: bool
    required: bool
    default: Any

    @property
    def tensor(self) -> bool:
        """Whether it is a tensor or None."""
        return self.type in _TENSORS

    @property
    def tensors(self) -> bool:
        """Whether it is a list of tensors."""
        return self.type in _TENSOR_LISTS

    @property
    def place(self) -> bool:
        """Whether it is a device, or the state of random numbers."""
        return self.type in _PLACES

    @property
    def text(self) -> bool:
        """Whether it is a text."""
        return self.type in _TEXTS


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an operator; a ``composite`` one only calls others."""

    composite: bool
    parameters: tuple[Parameter, ...]

    def bound(
        self, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> Iterator[tuple[Parameter, Any]]:
        """Yield each parameter with its argument or its default."""
        for number, parameter in enumerate(self.parameters):
            if parameter.name in named:
                yield parameter, named[parameter.name]
            elif number < len(positional) and not parameter.by_name:
                yield parameter, positional[number]
            else:
                yield parameter, parameter.default


@cache
def signatures() -> Mapping[str, Mapping[str, Signature]]:
    """The signatures of all overloads by name: ``{"aten::add": {"Tensor": …}}``."""
    packed = resources.files(__package__).joinpath("signatures.json.xz").read_bytes()
    every: dict[str, dict[str, Signature]] = {}
    for name, (composite, parameters) in json.loads(lzma.decompress(packed))["operators"].items():
        operator, _, overload = name.partition(".")
        signature = Signature(bool(composite), tuple(_parameter(*each) for each in parameters))
        every.setdefault(operator, {})[overload] = signature
    return every


def _parameter(name: str, type_: str, by_name: bool, *default: Any) -> Parameter:
    return Parameter(name, type_, by_name, not default, default[0] if default else None)
