"""Every request has one handler, and it and its answer are the same after the pipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.decompose.lowering import Contents, Lowering
from bricks.graph.sketch import Sketch
from bricks.graph.types import ContainerType, TensorType
from bricks.measure.protocol.models import ReadExecuted, TypedGraph
from bricks.measure.protocol.request import (
    Handlers,
    Request,
    answer_from_json,
    answer_to_json,
    answer_type,
    codec_of,
    message_codec,
    request_from_json,
    request_to_json,
)
from bricks.measure.protocol.walking import RunWalk
from bricks.measure.worker.worker import Worker

HANDLERS: Handlers = Worker(lambda message: None).handlers


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_what_handles_a_request_returns_its_answer(kind: type[Request[Any]]) -> None:
    hints = get_type_hints(HANDLERS[kind])
    returned = hints.pop("return")
    (taken,) = hints.values()
    assert taken == kind
    expected = answer_type(kind)
    assert returned == (type(None) if expected is None else expected) or issubclass(
        returned.__origin__, Mapping
    )


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_requests_and_answers_can_be_written(kind: type[Request[Any]]) -> None:
    assert is_dataclass(kind) and kind.__slots__ == tuple(each.name for each in fields(kind))
    message_codec(kind)
    message_codec(answer_type(kind))


def test_every_request_is_handled() -> None:
    import bricks.measure.protocol as package

    known = {kind.__name__ for kind in HANDLERS}
    assert known == {kind.__name__ for kind in Request.__subclasses__()}, package


# A message of each kind of value.
@dataclass(frozen=True, slots=True)
class Row:
    name: str
    data: bytes
    numbers: tuple[float, ...]
    inner: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Message:
    rows: tuple[Row, ...]
    by_name: Mapping[str, Row]
    by_number: Mapping[int, tuple[str, ...]]
    one: Row
    flag: bool = False
    missing: float | None = None


def _finite() -> st.SearchStrategy[float]:
    return st.floats(allow_nan=False, allow_infinity=False)


ROWS = st.builds(
    Row,
    st.text(),
    st.binary(),
    st.lists(_finite()).map(tuple),
    st.none() | st.tuples(st.integers(), st.text()),
)
MESSAGES = st.builds(
    Message,
    st.lists(ROWS).map(tuple),
    st.dictionaries(st.text(), ROWS),
    st.dictionaries(st.integers(), st.lists(st.text()).map(tuple)),
    ROWS,
    st.booleans(),
    st.none() | _finite(),
)


@given(MESSAGES)
def test_a_message_is_the_same_after_the_pipe(message: Message) -> None:
    codec = message_codec(Message)
    assert codec.from_json(json.loads(json.dumps(codec.to_json(message)))) == message


def test_a_message_is_an_object_without_defaults_and_its_tables_are_rows() -> None:
    row = Row("a", b"\0", (0.5,), None)
    message = Message((row,), {}, {1: ("b",)}, row)
    as_json = json.loads(json.dumps(message_codec(Message).to_json(message)))
    table = ["a", "AA==", [0.5], None]
    assert as_json == {"rows": [table], "by_name": {}, "by_number": [[1, ["b"]]], "one": table}


def test_fields_that_are_missing_or_unknown_are_refused() -> None:
    for data in ({"steps": []}, {"steps": [], "passes": 1, "announce": False, "speed": 2}):
        with pytest.raises(TypeError):
            request_from_json(RunWalk, data)
    with pytest.raises(TypeError, match="no JSON"):
        codec_of(set[int])


def test_types_and_sketches_of_values_pass() -> None:
    tensor = TensorType("FLOAT", (1, 2))
    answer = TypedGraph(
        b"model",
        {"x": tensor, "y": ContainerType("seq(tensor(float))", (tensor,))},
        lowering=Lowering(((0, 1), (2,)), other_kernels={3: ("kernel",)}),
        contents=Contents(sketches={"x": Sketch(negative=0.5, changes=0.25)}),
    )
    request = ReadExecuted(b"model", key="m1-0")
    told = json.loads(json.dumps(answer_to_json(ReadExecuted, answer)))
    assert answer_from_json(request, told) == answer
    message = json.loads(json.dumps(request_to_json(request)))
    assert message.pop("op") == "ReadExecuted"
    assert request_from_json(ReadExecuted, message) == request
