"""Results of studies as paragraphs and tables of a page: those that a terminal shows.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as texts; ``left`` says which columns are aligned on the left."""

    titles: Sequence[str]
    left: Sequence[bool]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, table: Table) -> PageTable:
        """The texts of a table for terminals."""
        columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
        return cls(
            [_plain(column.header) for column in table.columns],
            [column.justify != "right" for column in table.columns],
            list(zip(*columns, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class StudyView:
    """Functions of ``bricks.report`` by name (``module:function``): the answer, and its parts."""

    parts: str
    answer: str | None = None
    remarks: str | None = None

    def headline(self, result: Any) -> str | None:
        """The answer in a sentence; None if no function has one."""
        text: str | None = None if self.answer is None else _report(self.answer)(result)
        return text

    def blocks(self, result: Any) -> list[str | PageTable]:
        """The parts of a result, and remarks, in the order to show them."""
        lines = [] if self.remarks is None else _report(self.remarks)(result)
        return [*_blocks([*_report(self.parts)(result), *lines])]


# The views of studies by name; any other study has the last one.
_VIEWS: Mapping[str, StudyView] = {
    "llm": StudyView(
        "generation:llm_parts",
        answer="answers.generation:llm_answer",
        remarks="generation:llm_remarks",
    ),
    "scale": StudyView(
        "scaling:scaling_parts",
        answer="answers.scaling:scaling_answer",
        remarks="answers.scaling:scaling_remarks",
    ),
}
_PLAIN = StudyView("study:study_parts")


def view_of_study(name: str) -> StudyView:
    """The view of the study called ``name``."""
    return _VIEWS.get(name, _PLAIN)


def _report(name: str) -> Callable[[Any], Any]:
    module, _, function = name.partition(":")
    found: Callable[[Any], Any] = getattr(import_module(f"bricks.report.{module}"), function)
    return found


def _blocks(parts: Sequence[RenderableType]) -> Iterator[str | PageTable]:
    for part in parts:
        if isinstance(part, Table):
            yield PageTable.of(part)
        elif text := _plain(part):
            yield text


def _plain(part: RenderableType) -> str:
    return part.plain if isinstance(part, Text) else str(part)
