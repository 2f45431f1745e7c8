"""Private suites: detect bricks that identify their model, and add decoy bricks.

A brick has no names, no weights and no neighbours. Text in it can still identify a model: labels in
attributes or constants, names of custom operators. The set of bricks can too, so decoys are mixed
in. Must not know how suites are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import onnx
from onnx import defs

from bricks.errors import SuiteError
from bricks.graph.topology import all_nodes, default_domain
from bricks.graph.view import parse_model

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# The operators of these domains are public.
_PUBLIC = frozenset(("", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"))
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The equation of Einsum consists of letters that stand for dimensions.
_EQUATION = re.compile(r"[A-Za-z,.> -]*")
_LONGEST_EQUATION = 64


def refuse_identifying_text(bricks: Iterable[Brick]) -> None:
    """Raise :class:`SuiteError` for a brick that contains text specific to its model."""
    for brick in bricks:
        for text in _identifying_text(brick):
            raise SuiteError(
                f"a brick ({', '.join(brick.operators)}) holds {text}, which tells of its model:"
                " leave that out of a private suite, or generate it without --private"
            )


def _identifying_text(brick: Brick) -> Iterator[str]:
    """Text of a brick that is not public vocabulary, described in words."""
    proto = parse_model(brick.model)
    for node in all_nodes(proto.graph):
        if default_domain(node.domain) not in _PUBLIC:
            yield f"an operator of the domain '{node.domain}'"
        for attribute in node.attribute:
            for text in _texts(attribute):
                equation = node.op_type == "Einsum" and attribute.name == "equation"
                harmless = text in _public_words() or not text
                if equation and len(text) <= _LONGEST_EQUATION:
                    harmless = _EQUATION.fullmatch(text) is not None
                if not harmless:
                    yield f"the text '{text[:40]}'"
    for tensor in proto.graph.initializer:
        if tensor.string_data:
            yield "texts"
    for values in brick.examples.values():
        if any(isinstance(value, str) for value in values):
            yield "texts"


def _texts(attribute: onnx.AttributeProto) -> Iterator[str]:
    """All text of an attribute; the text of subgraphs is found through their nodes."""
    for raw in (attribute.s, *attribute.strings, *attribute.t.string_data):
        yield raw.decode("utf-8", "replace")
    for tensor in attribute.tensors:
        yield from (raw.decode("utf-8", "replace") for raw in tensor.string_data)


@cache
def _public_words() -> frozenset[str]:
    """The operators of ONNX, and the words in the descriptions of their attributes."""
    schemas = defs.get_all_schemas_with_history()
    words = {schema.name for schema in schemas}
    for attribute in (attribute for schema in schemas for attribute in schema.attributes.values()):
        words.update(_WORD.findall(attribute.description))
        words.add(attribute.default_value.s.decode())
    return frozenset(words)


def decoys(
    own: Mapping[str, Brick], others: Iterable[Mapping[str, Brick]], count: int
) -> dict[str, Brick]:
    """``count`` bricks of the models ``others`` that are not in ``own``."""
    chosen: dict[str, Brick] = {}
    for model in others:
        for key in sorted(model.keys() - own.keys()):
            if len(chosen) == count:
                return chosen
            chosen[key] = model[key]
        if len(chosen) == count:
            return chosen
    raise SuiteError(
        f"there are no {count} bricks to mix in, only {len(chosen)}: give fewer --decoys"
    )
