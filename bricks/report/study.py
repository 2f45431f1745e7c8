"""Results of studies: how any is shown in terminals, and which functions show particular ones.

Rows of results are tables, all else is a line each; units follow from names, as in all results
(``_s`` are seconds, ``_bytes`` bytes, ``_share`` shares). Commands and pages of a server use the
same views. A function of a view is imported when it is called, since commands are made without
their results. Must not know how parts are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bricks.report.tables import Column, facts_table, number, percent, seconds, size, table_of
from bricks.units.facts import ERROR, attributes, value_of
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNITS: Mapping[str, Callable[[float], str]] = {
    "_s": seconds, "_bytes": size, "_share": percent, "ratio": partial(number, digits=3),
}  # fmt: skip


def study_parts(result: object) -> list[RenderableType]:
    """Single facts, then a table for each sequence of results."""
    values = {name: value_of(result, name) for name in attributes(type(result))}
    single = {
        name: text for name, value in values.items() if (text := _text(name, value)) is not None
    }
    parts: list[RenderableType] = [facts_table(single)] if single else []
    for value in values.values():
        if rows := _rows(value):
            columns = [_column(name, rows) for name in attributes(type(rows[0]))]
            parts += ["", table_of(rows, columns)]
    return parts


def _rows(value: object) -> list[Any]:
    """The results among ``value``: failures are errors, which stand elsewhere."""
    if not isinstance(value, Sequence) or not all(map(is_dataclass, value)):
        return []
    return [row for row in value if getattr(row, ERROR, None) is None]


def _column(name: str, rows: Sequence[Any]) -> Column[Any]:
    def cell(row: Any) -> str | None:
        return _text(name, value_of(row, name))

    text = all(isinstance(value_of(row, name), str) for row in rows)
    title = name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    return Column(title, cell, left=text)


def _text(name: str, value: Any) -> str | None:
    """``value`` with its unit; None unless it is a number, a text or an interval."""
    match value:
        case Interval():
            value_, low, high = (_number(name, n) for n in (value.value, value.low, value.high))
            return f"{value_} ({low} … {high})"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return _number(name, value)
    return value if isinstance(value, str) else None


def _number(name: str, value: float) -> str:
    unit = next((of for end, of in _UNITS.items() if name.endswith(end)), "{:g}".format)
    return unit(value)


def from_report(name: str) -> Callable[..., Any]:
    """The function ``module:function`` of ``bricks.report``, imported when it is called."""
    module, _, function = name.partition(":")

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"bricks.report.{module}"), function)(*arguments, **named)

    return call


@dataclass(frozen=True, slots=True)
class StudyView:
    """Functions of a result: its ``parts``, and where it has them an answer, remarks and details.

    ``answer`` is the first line, in words, which JSON has too; ``remarks`` are the lines below the
    parts, and ``details`` are parts that replace the usual ones where all is to be shown.
    """

    parts: Callable[[Any], Sequence[RenderableType]]
    answer: Callable[[Any], str] | None = None
    remarks: Callable[[Any], Sequence[str]] = lambda result: ()
    details: Callable[[Any], Sequence[RenderableType]] | None = None


def _view(module: str, prefix: str, *, answer: str, remarks: str | None = None) -> StudyView:
    """The functions of ``module`` whose names begin with ``prefix``."""
    return StudyView(
        from_report(f"{module}:{prefix}_parts"),
        from_report(answer),
        from_report(remarks or f"{module}:{prefix}_remarks"),
        from_report(f"{module}:{prefix}_details"),
    )


_VIEWS: Mapping[str, StudyView] = {
    "llm": _view("generation", "llm", answer="generation:llm_answer"),
    "scenario": _view("scenario", "scenario", answer="scenario:scenario_text"),
    "scale": _view(
        "scaling", "scaling",
        answer="scaling:scaling_answer", remarks="scaling:scaling_remarks",
    ),
    "train": _view(
        "training", "training",
        answer="training:training_answer", remarks="training:training_remarks",
    ),
}  # fmt: skip
_ANY = StudyView(study_parts)


def view_of_study(name: str) -> StudyView:
    """The view of the study called ``name``; that of any study, if it has none of its own."""
    return _VIEWS.get(name, _ANY)
