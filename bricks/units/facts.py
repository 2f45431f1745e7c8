"""JSON of results: a dataclass's fields under their names, an interval under three.

A field or property ``x`` of type :class:`~bricks.units.interval.Interval` becomes ``x``, ``x_low``
and ``x_high``. Where a contract has other names, or other facts than the fields, the class says so
in ``FACTS``; ``a.b`` is what the field ``a`` has. A failure stands where a result would, ``LIKE``
whose class it says: it has the same names, and an ``error``. Must not know any result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

# An entry of ``FACTS``: the name of a field or property, or a dotted path of such and of keys of
# mappings, with the names that JSON has.
Named = str | tuple[str, ...]

ERROR = "error"

_INTERVALS = {"Interval", "Interval | None"}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that there is not, and why, in one line. In JSON it is None."""

    reason: str

    def to_json(self) -> None:
        """None: the reason has a name of its own."""


@dataclass(frozen=True, slots=True)
class _Fact:
    attribute: str
    keys: tuple[str, ...]

    def of(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Each key with its value; all of them None where there is no value."""
        if len(self.keys) == 1:
            yield self.keys[0], json_of(value)
        else:
            ends = (None,) * 3 if value is None else (value.value, value.low, value.high)
            yield from zip(self.keys, map(json_of, ends), strict=True)


def facts(of: object) -> dict[str, Any]:
    """The JSON object of a dataclass; None for what a failure does not have."""
    like: type = getattr(of, "LIKE", type(of))
    # A failure lacks what a result has; a result that lacks a fact is a mistake in its FACTS.
    read = value_of if like is not type(of) else _stated
    return {
        key: value for fact in _facts_in(like) for key, value in fact.of(read(of, fact.attribute))
    }


def value_of(of: object, attribute: str) -> Any:
    """The field or property ``attribute``, ``a.b`` for one of a part; None if there is none.

    A part may be a mapping, and ``b`` one of its keys.
    """
    value: Any = of
    for name in attribute.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _stated(of: object, attribute: str) -> Any:
    """As :func:`value_of`, of a result: ``AttributeError`` where it lacks the field itself.

    A part may be a failure, which lacks what another part in its place would have.
    """
    own, _, path = attribute.partition(".")
    value = getattr(of, own, None) if own == ERROR else getattr(of, own)
    return value_of(value, path) if path else value


def with_ends(path: str, key: str) -> tuple[str, ...]:
    """The entry of ``FACTS`` for the interval at ``path``, under ``key`` and its two ends."""
    return (path, key, f"{key}_low", f"{key}_high")


def attributes(cls: type) -> list[str]:
    """The fields and properties of a class that are facts, in the order of its JSON."""
    return [fact.attribute for fact in _facts_in(cls)]


def json_of(value: Any) -> Any:
    """``value`` as JSON has it; a number that is not finite is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {str(key): json_of(each) for key, each in value.items()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return facts(value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else [json_of(each) for each in value]


@cache
def _facts_in(cls: type) -> tuple[_Fact, ...]:
    declared: Iterable[Named] | None = getattr(cls, "FACTS", None)
    if declared is None:
        assert is_dataclass(cls), f"{cls.__name__} is no dataclass and has no FACTS"
        declared = [field.name for field in fields(cls)]
    return tuple(_fact(cls, each) for each in declared)


def _fact(cls: type, named: Named) -> _Fact:
    if not isinstance(named, str):
        return _Fact(named[0], named[1:])
    if named == ERROR:  # of a result there is none
        return _Fact(ERROR, (ERROR,))
    ends = ("", "_low", "_high") if _annotation(cls, named) in _INTERVALS else ("",)
    return _Fact(named, tuple(f"{named}{end}" for end in ends))


def _annotation(cls: type, name: str) -> str:
    """The type of a field or property, as it is written."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, property) and found.fget is not None:
        return str(inspect.get_annotations(found.fget).get("return"))
    for base in cls.__mro__:
        if name in (written := inspect.get_annotations(base)):
            return str(written[name])
    raise AttributeError(f"{cls.__name__} has no {name}, which its FACTS name")
