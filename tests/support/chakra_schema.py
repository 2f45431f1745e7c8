"""The part of MLCommons' schema of execution traces (``et_def.proto``) that tests read.

Written as proto2, which tells a field that is zero from one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_LABELS = {"one": 1, "many": 3}
_TYPES = {"double": 1, "int64": 3, "uint64": 4, "bool": 8, "string": 9, "message": 11, "enum": 14}
# By message: its fields as (name, number, type, how many, type of a message).
_MESSAGES: dict[str, list[tuple[str, int, str, str, str]]] = {
    "Attribute": [
        ("name", 1, "string", "one", ""), ("double_val", 3, "double", "one", ""),
        ("int64_val", 9, "int64", "one", ""), ("uint64_val", 13, "uint64", "one", ""),
        ("bool_val", 27, "bool", "one", ""), ("string_val", 29, "string", "one", ""),
    ],
    "Metadata": [("version", 1, "string", "one", ""), ("attr", 2, "message", "many", "Attribute")],
    "Values": [
        ("values", 1, "string", "one", ""), ("shapes", 2, "string", "one", ""),
        ("types", 3, "string", "one", ""),
    ],
    "Node": [
        ("id", 1, "uint64", "one", ""), ("name", 2, "string", "one", ""),
        ("type", 3, "uint64", "one", ""), ("ctrl_deps", 4, "uint64", "many", ""),
        ("data_deps", 5, "uint64", "many", ""), ("start_time_micros", 6, "uint64", "one", ""),
        ("duration_micros", 7, "uint64", "one", ""), ("inputs", 8, "message", "one", "Values"),
        ("outputs", 9, "message", "one", "Values"), ("attr", 10, "message", "many", "Attribute"),
    ],
}  # fmt: skip
COMPUTES = 4


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="c", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, type_, label, of in fields:
            added = message.field.add(name=field, number=number, type=_TYPES[type_])
            added.label = _LABELS[label]
            if of:
                added.type_name = f".c.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    of_name = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(of_name(f"c.{name}")) for name in _MESSAGES}


def messages(content: bytes) -> tuple[Any, list[Any]]:
    """The metadata and the nodes of a file; AssertionError for unknown fields."""
    classes = _classes()
    first, *others = _parts(content)
    metadata = classes["Metadata"].FromString(first)
    return metadata, [classes["Node"].FromString(each) for each in others]


def _parts(content: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(content):
        size = shift = 0
        while True:
            byte = content[position]
            size, shift, position = size | (byte & 127) << shift, shift + 7, position + 1
            if byte < 128:
                break
        yield content[position : position + size]
        position += size
    assert position == len(content)


def facts(attributes: Any) -> dict[str, Any]:
    """The attributes of a message by name."""
    return {each.name: getattr(each, each.ListFields()[-1][0].name) for each in attributes}
