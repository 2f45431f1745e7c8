"""Results of studies as paragraphs and tables of a page: those that a terminal shows.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.report.study_views import StudyView


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


def blocks_of(view: StudyView, result: Any) -> list[str | PageTable]:
    """The parts of a result, and remarks, in the order to show them."""
    return [*_blocks([*view.parts(result), *view.remarks(result)])]


def _blocks(parts: Sequence[RenderableType]) -> Iterator[str | PageTable]:
    for part in parts:
        if isinstance(part, Table):
            yield PageTable.of(part)
        elif text := _plain(part):
            yield text


def _plain(part: RenderableType) -> str:
    return part.plain if isinstance(part, Text) else str(part)
