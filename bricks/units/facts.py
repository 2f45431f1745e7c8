"""JSON of results: the fields of a dataclass under their names, an interval under three.

A field or property ``x`` of type :class:`~bricks.units.interval.Interval` becomes ``x``, ``x_low``
and ``x_high``. A class whose JSON has other names or facts than its fields lists them in ``FACTS``;
``a.b`` is an attribute of the field ``a``. The class of a failure names in ``LIKE`` the class of
results that it replaces: its JSON has the same keys, and an ``error``. Must not know any result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import get_annotations, getattr_static
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

# An entry of ``FACTS``: the name of a field or property, or a dotted path of names and keys of
# mappings, followed by its keys in JSON.
Named = str | tuple[str, ...]

ERROR = "error"

_INTERVALS = {"Interval", "Interval | None"}


@dataclass(frozen=True, slots=True)
class Missing:
    """The ``reason`` in one line why a result does not exist; None in JSON."""

    reason: str

    def to_json(self) -> None:
        """Return None: the reason has a key of its own."""


@runtime_checkable
class WritesJson(Protocol):
    """A value with JSON of its own, other than an object of its fields."""

    def to_json(self) -> Any:
        """The value as JSON's own types."""


@dataclass(frozen=True, slots=True)
class _Fact:
    attribute: str
    keys: tuple[str, ...]

    def of(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Pairs of key and JSON value; all None where ``value`` is None."""
        if len(self.keys) == 1:
            yield self.keys[0], json_of(value)
        else:
            ends = (None,) * 3 if value is None else (value.value, value.low, value.high)
            yield from zip(self.keys, map(json_of, ends), strict=True)


def facts(of: object) -> dict[str, Any]:
    """Return the JSON object of a dataclass; None for facts that a failure lacks."""
    like: type = getattr(of, "LIKE", type(of))
    # A failure lacks what a result has; a result that lacks a fact is a mistake in its FACTS.
    read = value_of if like is not type(of) else _stated
    return {
        key: value for fact in _facts_in(like) for key, value in fact.of(read(of, fact.attribute))
    }


def value_of(of: object, attribute: str) -> Any:
    """Return the value at the dotted path ``attribute`` of fields, properties and mapping keys.

    None where the path leads nowhere.
    """
    value: Any = of
    for name in attribute.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _stated(of: object, attribute: str) -> Any:
    """As :func:`value_of`; ``AttributeError`` where a result lacks the first name of the path.

    Later names may be lacking, since a part of a result may be a failure.
    """
    first, _, path = attribute.partition(".")
    value = getattr(of, first, None) if first == ERROR else getattr(of, first)
    return value_of(value, path) if path else value


def with_ends(path: str, key: str) -> tuple[str, ...]:
    """Return the entry of ``FACTS`` for the interval at ``path``: ``key`` and its two ends."""
    return (path, key, f"{key}_low", f"{key}_high")


def attributes(cls: type) -> list[str]:
    """Return the paths of a class's facts, in the order of its JSON."""
    return [fact.attribute for fact in _facts_in(cls)]


def json_of(value: Any) -> Any:
    """Convert ``value`` to JSON types; numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {str(key): json_of(item) for key, item in value.items()}
    if isinstance(value, WritesJson):
        return value.to_json()
    if is_dataclass(value):
        return facts(value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else [json_of(item) for item in value]


@cache
def _facts_in(cls: type) -> tuple[_Fact, ...]:
    declared: Iterable[Named] | None = getattr(cls, "FACTS", None)
    if declared is None:
        assert is_dataclass(cls), f"{cls.__name__} is no dataclass and has no FACTS"
        declared = [field.name for field in fields(cls)]
    return tuple(_fact(cls, named) for named in declared)


def _fact(cls: type, named: Named) -> _Fact:
    if not isinstance(named, str):
        return _Fact(named[0], named[1:])
    if named == ERROR:  # of a result there is none
        return _Fact(ERROR, (ERROR,))
    ends = ("", "_low", "_high") if _annotation(cls, named) in _INTERVALS else ("",)
    return _Fact(named, tuple(f"{named}{end}" for end in ends))


def _annotation(cls: type, name: str) -> str:
    """Return the annotation of a field or property as source text."""
    member = getattr_static(cls, name, None)
    if isinstance(member, property) and member.fget is not None:
        return str(get_annotations(member.fget).get("return"))
    for base in cls.__mro__:
        if name in (annotations := get_annotations(base)):
            return str(annotations[name])
    raise AttributeError(f"{cls.__name__} has no {name}, which its FACTS name")
