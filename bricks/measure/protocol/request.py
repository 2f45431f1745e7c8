"""The base type of requests: it names the type of the answer; JSON of both.

Must not know which requests exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from bricks.measure.protocol.codec import message_codec

Answer = TypeVar("Answer")


class Request(Generic[Answer]):
    """A request to the worker, which answers with an ``Answer``; None: with an acknowledgement.

    Each request is a frozen dataclass ``class Name(Request[Answer])`` with fields of types that
    :mod:`bricks.measure.protocol.codec` knows.
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
