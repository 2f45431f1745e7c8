"""Skim an ONNX file: return everything but the weights, without reading the weights.

A protobuf parser copies every byte of a file, and most bytes of a model are weights. This module
traverses the wire format over a memory map instead, copies small fields and replaces each large
payload by a reference (ONNX external data: this file, offset, length). The file is not trusted:
each length is checked against the enclosing message. Must not know the meaning of a graph, only
which fields hold tensors.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bricks.errors import ModelError

INLINE_BYTES = 1024  # payloads up to here are copied: cheaper than a reference, and often needed
STEERING_BYTES = 1 << 20  # integers up to here are copied: their values may steer shapes
MAX_DEPTH = 100  # protobuf's own limit

# Limits of a skeleton without weights; real ones have a few MB and some hundred thousand fields.
MAX_BYTES, MAX_FIELDS = 64 << 20, 4_000_000

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
LENGTH_DELIMITED = _LEN
_ROW = -1  # in place of a wire type: many items of a list

# Field numbers of onnx.proto that lead to tensors: message kind → field → kind of the field.
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
# Wire types of the fields of ModelProto, to distinguish a truncated model from another file.
_MODEL_FIELDS = {
    1: _VARINT, 2: _LEN, 3: _LEN, 4: _LEN, 5: _VARINT, 6: _LEN, 7: _LEN, 8: _LEN, 14: _LEN,
    20: _LEN, 25: _LEN, 26: _LEN,
}  # fmt: skip
_GRAPH = 7
_DATA_TYPE, _FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA = 2, 4, 9, 10
_PAYLOADS = frozenset({_FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA})
_STEERING_TYPES = frozenset({6, 7, 9})  # INT32, INT64, BOOL

# The lists of an attribute by the first byte of their items: floats, integers, and texts of fewer
# than 64 bytes. A tree ensemble has a million of each, so so many in a row are one field here.
_ATTRIBUTE, _IN_A_ROW, _TEXTS = "attribute", 256, ord("J")
_TEXT = b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(64))
_ROWS = {
    items[0]: re.compile(b"(?:%s){%d}" % (items, _IN_A_ROW), re.DOTALL)
    for items in (rb"=.{4}", rb"@[\x80-\xff]{0,9}[\x00-\x7f]", b"J(?:%s)" % _TEXT)
}


class _Malformed(Exception):
    """Raised for bytes that are not a protobuf message."""


class _Truncated(Exception):
    """Raised for a field that ends after the enclosing message."""


# The exceptions that `fields` raises.
WIRE_ERRORS = (_Malformed, _Truncated)


class _Field(NamedTuple):  # models have millions of fields: a tuple is the cheapest record
    number: int
    wire_type: int
    start: int  # of the tag
    body: int  # of the value, after tag and length
    end: int
    value: int  # of a varint; else 0


def skim(path: Path, *, attributes: bool = True) -> bytes:
    """Return the model in ``path`` as a serialised ``ModelProto`` with references to payloads.

    With ``attributes``, payloads in attributes become references too. Inline stay: payloads
    up to 1 KiB, raw INT32, INT64 and BOOL payloads up to 1 MiB, and values stored as
    variable-length integers or strings, to which no offset can refer. Raises :class:`ModelError`
    for files that are not a model, or a truncated one.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelError(f"{path} is not an ONNX model: it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _skim(path, data, attributes)
    except OSError as exc:
        raise ModelError(f"{path} cannot be read: {exc.strerror or exc}") from exc


def skim_bytes(content: bytes, name: str, *, inline_bytes: int = INLINE_BYTES) -> bytes:
    """Skim a model in memory, called ``name``, as :func:`skim`, but omit its large payloads.

    They become references to a file ``name`` that does not exist. Payloads up to
    ``inline_bytes``, and all in attributes, stay.
    """
    if not content:
        raise ModelError(f"{name} is not an ONNX model: it is empty")
    return _skim(Path(name), content, attributes=False, inline_bytes=inline_bytes)


def _skim(
    path: Path, data: mmap.mmap | bytes, attributes: bool, inline_bytes: int = INLINE_BYTES
) -> bytes:
    if data[:20] == b"version https://git-":
        raise ModelError(f"{path} is not an ONNX model but a Git LFS pointer: run git lfs pull")
    try:
        complete = _check_outline(data)
        if not complete:
            raise ModelError(f"{path} is not an ONNX model: it holds no graph")
        return _Skimmer(data, path.name, attributes, inline_bytes).message("model", 0, len(data), 0)
    except _Truncated as exc:
        raise ModelError(f"{path} is cut short: {exc}") from exc
    except _Malformed as exc:
        raise ModelError(f"{path} is not an ONNX model: {exc}") from exc


def _check_outline(data: mmap.mmap | bytes) -> bool:
    """Whether the outermost message holds a graph; raises if it is not a complete model."""
    seen = graph = False
    outermost = islice(fields(data, 0, len(data)), MAX_FIELDS)
    while True:
        try:
            field = next(outermost, None)
        except _Truncated as exc:
            # Random bytes overrun as well: only a file that begins like a model is a truncated one.
            if seen or data[0] == _GRAPH << 3 | _LEN:
                raise
            raise _Malformed("its bytes are no protobuf message") from exc
        if field is None:
            return graph
        if _MODEL_FIELDS.get(field.number, field.wire_type) != field.wire_type:
            raise _Malformed(f"field {field.number} is not of the type that a model has there")
        seen = seen or field.number in _MODEL_FIELDS
        graph = graph or field.number == _GRAPH


class _Skimmer:
    """Rewrites messages bottom-up, because every length changes with the enclosed fields."""

    def __init__(
        self, data: mmap.mmap | bytes, location: str, attributes: bool, inline_bytes: int
    ) -> None:
        self._data = data
        self._inline_bytes = inline_bytes
        self._attributes = attributes
        self._file = location
        self._location = location.encode()
        self._bytes_left, self._fields_left = MAX_BYTES, MAX_FIELDS

    def message(self, kind: str, start: int, end: int, depth: int) -> bytes:
        """Return the message at ``start:end`` with references in place of large payloads."""
        if depth > MAX_DEPTH:
            raise _Malformed(f"its messages are nested more than {MAX_DEPTH} deep")
        children, lists = _CHILDREN[kind], kind == _ATTRIBUTE
        parts: list[bytes] = []
        copied = start
        for field in self._within(start, end, lists):
            child = children.get(field.number)
            # A message this small holds no large payload: copied together with its neighbours.
            if child is None or field.wire_type != _LEN or field.end - field.body <= INLINE_BYTES:
                continue
            if lists and child != "graph" and not self._attributes:
                continue
            rewritten = (
                self._tensor(field.body, field.end)
                if child == "tensor"
                else self.message(child, field.body, field.end, depth + 1)
            )
            parts.append(self._copy(copied, field.start))
            parts.append(encoded(field.number, rewritten))
            copied = field.end
        parts.append(self._copy(copied, end))
        return b"".join(parts)

    def _copy(self, start: int, end: int) -> bytes:
        """Return the bytes at ``start:end``; raises if the total of copied bytes is too large."""
        self._bytes_left -= end - start
        if self._bytes_left < 0:
            raise ModelError(
                f"{self._file} holds more than {MAX_BYTES >> 20} MiB besides raw weights: refused;"
                " store its weights raw, or beside the model"
            )
        return self._data[start:end]

    def _tensor(self, start: int, end: int) -> bytes:
        members = list(self._within(start, end))
        payloads = [f for f in members if f.number in _PAYLOADS]
        dtype = next((f.value for f in reversed(members) if f.number == _DATA_TYPE), 0)
        # Values spread over several fields (allowed, but never observed) have no single offset.
        if len(payloads) != 1 or not self._referable(payloads[0], dtype):
            return self._copy(start, end)
        payload = payloads[0]
        reference = b"".join(
            encoded(13, encoded(1, key) + encoded(2, value))
            for key, value in (
                (b"location", self._location),
                (b"offset", b"%d" % payload.body),
                (b"length", b"%d" % (payload.end - payload.body)),
            )
        )
        external = varint(14 << 3 | _VARINT) + b"\x01"
        before, after = self._copy(start, payload.start), self._copy(payload.end, end)
        return before + after + reference + external

    def _referable(self, payload: _Field, dtype: int) -> bool:
        size = payload.end - payload.body
        if payload.wire_type != _LEN or size <= self._inline_bytes:
            return False
        return dtype not in _STEERING_TYPES or size > STEERING_BYTES

    def _within(self, start: int, end: int, lists: bool = False) -> Iterator[_Field]:
        try:
            for field in fields(self._data, start, end, lists=lists):
                # Numbers in memory take some times their bytes here, which are limited; a text is
                # an object.
                texts = field.wire_type == _ROW and self._data[field.start] == _TEXTS
                self._fields_left -= _IN_A_ROW if texts else 1
                if self._fields_left < 0:
                    raise ModelError(
                        f"{self._file} holds more than {MAX_FIELDS} fields: refused; models are"
                        " far smaller"
                    )
                yield field
        except _Truncated as exc:
            # The outermost message is complete, so the file is not truncated: a length is wrong.
            raise _Malformed("a length inside it is wrong") from exc


def fields(
    data: mmap.mmap | bytes, start: int, end: int, *, lists: bool = False
) -> Iterator[_Field]:
    """Yield the fields of the message at ``start:end``; raises for a field that overruns it.

    With ``lists`` the message is an attribute, and 256 items of one of its lists are one field.
    """
    position = start
    while position < end:
        row = _ROWS.get(data[position]) if lists else None
        if row is not None and (match := row.match(data, position, end)):
            yield _Field(data[position] >> 3, _ROW, position, position, match.end(), 0)
            position = match.end()
            continue
        tag, body = _read_varint(data, position, end)
        number, wire_type, value = tag >> 3, tag & 7, 0
        if number == 0:
            raise _Malformed("its bytes are no protobuf message")
        if wire_type == _VARINT:
            value, stop = _read_varint(data, body, end)
        elif wire_type == _LEN:
            length, body = _read_varint(data, body, end)
            stop = body + length
        elif wire_type in (_I64, _I32):
            stop = body + (8 if wire_type == _I64 else 4)
        else:
            raise _Malformed("its bytes are no protobuf message")
        if stop > end:
            raise _Truncated(f"field {number} ends at byte {stop}, the file at byte {end}")
        yield _Field(number, wire_type, position, body, stop, value)
        position = stop


def _read_varint(data: mmap.mmap | bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= 70:
            raise _Malformed("its bytes are no protobuf message")
    raise _Truncated(f"a number is unfinished where the file ends, at byte {end}")


def varint(value: int) -> bytes:
    """The bytes of a number that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded(number: int, body: bytes) -> bytes:
    """The bytes of a field with a length: a text or a message."""
    return varint(number << 3 | _LEN) + varint(len(body)) + body
