"""A dataclass of results is JSON without a line of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.units.facts import Missing, attributes, facts, json_of, with_ends
from bricks.units.interval import Interval


class Kind(Enum):
    ONE = "one of them"


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    latency_s: Interval
    cost: Interval | None = None
    parts: tuple[Kind, ...] = ()
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Contracted:
    FACTS: ClassVar = (
        "name", ("latency_s", "estimate_s", "low_s", "high_s"), "twice", ("count", "n"), "error",
    )  # fmt: skip

    name: str
    latency_s: Interval
    count: int = 1
    unsaid: str = ""

    @property
    def twice(self) -> Interval | None:
        return self.latency_s.scaled(2.0)


@dataclass(frozen=True, slots=True)
class Failed:
    LIKE: ClassVar = Contracted

    name: str
    error: str


LATENCY_S = Interval(2.0, 1.0, 4.0)


def test_an_interval_has_three_keys() -> None:
    assert facts(Plain("a", LATENCY_S, parts=(Kind.ONE,), file=Path("/x"))) == {
        "name": "a", "latency_s": 2.0, "latency_s_low": 1.0, "latency_s_high": 4.0,
        "cost": None, "cost_low": None, "cost_high": None, "parts": ["one of them"], "file": "/x",
    }  # fmt: skip


def test_a_class_says_what_its_contract_has() -> None:
    found = facts(Contracted("a", LATENCY_S))
    assert found == {
        "name": "a", "estimate_s": 2.0, "low_s": 1.0, "high_s": 4.0, "twice": 4.0, "twice_low": 2.0,
        "twice_high": 8.0, "n": 1, "error": None,
    }  # fmt: skip
    assert attributes(Contracted) == ["name", "latency_s", "twice", "count", "error"]


def test_a_failure_looks_like_a_result() -> None:
    failed, result = facts(Failed("a", "why")), facts(Contracted("a", LATENCY_S))
    assert list(failed) == list(result)
    assert {key for key, value in failed.items() if value is not None} == {"name", "error"}


@dataclass(frozen=True, slots=True)
class Whole:
    FACTS: ClassVar = (
        "part", ("part.latency_s", "latency_s", "low_s", "high_s"), ("part.reason", "reason"),
    )  # fmt: skip

    part: Contracted | Missing


def test_what_is_missing_has_a_reason_of_its_own() -> None:
    there, missing = facts(Whole(Contracted("a", LATENCY_S))), facts(Whole(Missing("why")))
    assert (there["latency_s"], there["low_s"], there["reason"]) == (2.0, 1.0, None)
    assert missing == {
        "part": None, "latency_s": None, "low_s": None, "high_s": None, "reason": "why",
    }  # fmt: skip


@dataclass
class Figures:
    FACTS: ClassVar = (
        ("part.name", "part_name"), with_ends("figures.p50_s", "p50_s"), ("none.name", "nobody"),
    )  # fmt: skip

    part: Plain
    figures: Mapping[str, Interval]
    none: Plain | None = None


def test_a_path_leads_to_facts_of_parts_and_ends_where_there_is_none() -> None:
    found = facts(Figures(Plain("a", LATENCY_S), {"p50_s": LATENCY_S}))
    ends = {"p50_s": 2.0, "p50_s_low": 1.0, "p50_s_high": 4.0}
    assert found == {"part_name": "a", **ends, "nobody": None}
    lacking = facts(Figures(Plain("a", LATENCY_S), {}))
    assert lacking == {**found, **dict.fromkeys(ends)}


def test_a_contract_of_what_is_not_there_is_an_error() -> None:
    @dataclass
    class Wrong:
        FACTS: ClassVar = ("nme",)

        name: str

    with pytest.raises(AttributeError, match="nme"):
        facts(Wrong("a"))


number = st.floats(allow_nan=True, allow_infinity=True)


@given(number, number, number)
def test_whatever_the_numbers_a_program_can_read_them(
    value: float, low: float, high: float
) -> None:
    said = json.dumps(json_of({"a": [Plain("b", Interval(value, low, high))]}), allow_nan=False)
    (row,) = json.loads(said)["a"]
    for key, number in (("latency_s", value), ("latency_s_low", low), ("latency_s_high", high)):
        assert row[key] == (number if math.isfinite(number) else None)


@dataclass(frozen=True, slots=True)
class Misnamed:
    FACTS: ClassVar = (("renamed", "rows"),)

    rows: int


def test_a_fact_that_a_result_lacks_is_no_silent_none() -> None:
    with pytest.raises(AttributeError, match="renamed"):
        facts(Misnamed(3))
