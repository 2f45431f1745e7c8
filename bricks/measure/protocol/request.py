"""The base type of requests: it names the type of the answer; JSON of both, and who answers.

Typed values become JSON and return from it as the annotations of dataclasses declare. Numbers,
strings and booleans are unchanged, bytes become base64, and sequences become lists, which are read
as tuples. A dataclass within another value is a row, the list of its fields, so that tables are
compact. A :class:`JsonType` is converted by its own methods. The methods of the worker that answer
requests are found by their annotations too. Must not know which requests exist.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from bricks.graph.types import ValueType, type_from_json
from bricks.units.facts import WritesJson

Answer = TypeVar("Answer")


class Request(Generic[Answer]):
    """A request to the worker, which answers with an ``Answer``; None: with an acknowledgement.

    Each request is a frozen dataclass ``class Name(Request[Answer])`` with fields of types that
    :mod:`bricks.measure.protocol.request` knows.
    """

    __slots__ = ()


def request_to_json(request: Request[Any]) -> dict[str, Any]:
    """The message of a request: the name of its type as ``op``, and its fields."""
    kind = type(request)
    return {"op": kind.__name__, **message_codec(kind).to_json(request)}


def request_from_json(kind: type[Request[Any]], fields: Mapping[str, Any]) -> Request[Any]:
    """The inverse of :func:`request_to_json`, of the ``fields`` without ``op``."""
    request: Request[Any] = message_codec(kind).from_json(fields)
    return request


def answer_type(kind: type[Request[Any]]) -> Any:
    """The type of the answers to requests of a type."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]  # of every generic class's subclass
    return get_args(base)[0]


def answer_to_json(kind: type[Request[Any]], answer: object) -> Any:
    """JSON of an answer to a request of type ``kind``."""
    return message_codec(answer_type(kind)).to_json(answer)


def answer_from_json(request: Request[Answer], data: Any) -> Answer:
    """The inverse of :func:`answer_to_json`."""
    answer: Answer = message_codec(answer_type(type(request))).from_json(data)
    return answer


# Types whose values are JSON already.
_PLAIN = (NoneType, bool, int, float, str, object, Any)


@dataclass(frozen=True, slots=True)
class Codec:
    """Functions that convert values of one type; ``plain`` if the values are JSON already."""

    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]
    plain: bool = False


@runtime_checkable
class JsonType(WritesJson, Protocol):
    """A type that writes its values as JSON, and reads them."""

    @classmethod
    def from_json(cls, data: Any) -> Any:
        """The inverse of :meth:`to_json`."""


def _unchanged(value: Any) -> Any:
    return value


_IDENTITY = Codec(_unchanged, _unchanged, plain=True)


@cache
def codec_of(kind: Any) -> Codec:
    """The codec of a type; ``TypeError`` for one that cannot be written."""
    if kind in _PLAIN:
        return _IDENTITY
    if kind == ValueType:
        return Codec(lambda type_: type_.to_json(), type_from_json)
    if kind is bytes:
        return Codec(lambda data: base64.b64encode(data).decode(), base64.b64decode)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Sequence:
        return _many(arguments[0])
    if origin is tuple:
        return _many(arguments[0]) if arguments[-1] is Ellipsis else _several(arguments)
    if origin in (Mapping, dict):
        return _mapping(*arguments)
    if origin in (Union, UnionType) and NoneType in arguments and len(arguments) == 2:
        item = next(argument for argument in arguments if argument is not NoneType)
        codec = codec_of(item)
        if codec.plain:
            return codec
        return Codec(
            lambda value: None if value is None else codec.to_json(value),
            lambda data: None if data is None else codec.from_json(data),
        )
    if isinstance(kind, type) and issubclass(kind, JsonType):
        return Codec(lambda value: value.to_json(), kind.from_json)
    if is_dataclass(kind):
        return _row(kind)
    raise TypeError(f"values of type {kind} have no JSON here")


def _many(item: Any) -> Codec:
    codec = codec_of(item)
    if codec.plain:
        return Codec(_unchanged, tuple)  # JSON's writer takes tuples as lists
    return Codec(
        lambda values: [codec.to_json(value) for value in values],
        lambda data: tuple(codec.from_json(value) for value in data),
    )


def _several(items: tuple[Any, ...]) -> Codec:
    codecs = tuple(map(codec_of, items))
    if all(codec.plain for codec in codecs):
        return Codec(_unchanged, tuple)
    return Codec(
        lambda values: [c.to_json(value) for c, value in zip(codecs, values, strict=True)],
        lambda data: tuple(c.from_json(value) for c, value in zip(codecs, data, strict=True)),
    )


def _mapping(key: Any, item: Any) -> Codec:
    """The codec of mappings: objects if keys are strings, and lists of pairs if not."""
    codec = codec_of(item)
    if key is str:
        return Codec(
            lambda mapping: {name: codec.to_json(value) for name, value in mapping.items()},
            lambda data: {name: codec.from_json(value) for name, value in data.items()},
        )
    pairs = _many(tuple[key, item])
    return Codec(lambda mapping: pairs.to_json(mapping.items()), lambda d: dict(pairs.from_json(d)))


def _row(kind: Any) -> Codec:
    codecs = _fields(kind)

    def to_json(value: Any) -> list[Any]:
        return [codec.to_json(getattr(value, name)) for name, codec in codecs.items()]

    def from_json(data: list[Any]) -> Any:
        values = zip(codecs.values(), data, strict=True)
        return kind(*(codec.from_json(value) for codec, value in values))

    return Codec(to_json, from_json)


@cache
def _fields(kind: Any) -> dict[str, Codec]:
    hints = get_type_hints(kind)
    return {field.name: codec_of(hints[field.name]) for field in fields(kind)}


def message_codec(kind: Any) -> Codec:
    """The codec of a message; a dataclass becomes an object of its fields without defaults.

    Other types are written as by :func:`codec_of`. Raises ``TypeError`` as that does, and on
    reading for a field that is missing or unknown.
    """
    of_dataclass: Any = kind if is_dataclass(kind) else None
    return codec_of(kind) if of_dataclass is None else _message(of_dataclass)


@cache
def _message(kind: Any) -> Codec:
    codecs = _fields(kind)
    defaults = {field.name: field.default for field in fields(kind)}

    def to_json(message: Any) -> dict[str, Any]:
        values = {name: getattr(message, name) for name in codecs}
        return {
            name: codecs[name].to_json(value)
            for name, value in values.items()
            if defaults[name] is MISSING or value != defaults[name]
        }

    def from_json(data: Mapping[str, Any]) -> Any:
        if unknown := [name for name in data if name not in codecs]:
            raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
        return kind(**{name: codecs[name].from_json(value) for name, value in data.items()})

    return Codec(to_json, from_json)


# A function of a request that returns the answer, by the type of the request.
Handlers = Mapping[type[Request[Any]], Callable[[Any], object]]

# Sends the parent the number of the step that is about to run, while a request is handled.
Announce = Callable[[int], None]


def handlers_of(subject: object) -> dict[type[Request[Any]], Callable[[Any], object]]:
    """The public methods of ``subject`` with a parameter ``request``, by the type of that."""
    handlers = {}
    for name, method in inspect.getmembers(type(subject), inspect.isfunction):
        if not name.startswith("_") and "request" in inspect.signature(method).parameters:
            handlers[get_type_hints(method)["request"]] = getattr(subject, name)
    return handlers
