"""Tables of result rows: columns are described once, for terminals and for pages.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.table import Table
from rich.text import Text

from bricks.errors import printable
from bricks.units.facts import Missing

Row = TypeVar("Row")
Part = TypeVar("Part")
Row_contra = TypeVar("Row_contra", contravariant=True)

DASH = "–"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row_contra]):
    """A column of a table: ``cell`` gives the text of a row, or None for a dash.

    A column with nothing but dashes is omitted. Text is aligned on the ``left``, numbers on the
    right.
    """

    title: str
    cell: Callable[[Row_contra], str | None]
    left: bool = False


def part_column(
    title: str,
    part: Callable[[Row], Part | Missing | None],
    text: Callable[[Part], str | None],
    *,
    left: bool = False,
    otherwise: str | None = None,
) -> Column[Row]:
    """A column with the ``text`` of a row's ``part``, or ``otherwise`` if it is missing or None."""

    def cell(row: Row) -> str | None:
        known = part(row)
        return otherwise if known is None or isinstance(known, Missing) else text(known)

    return Column(title, cell, left)


@dataclass(frozen=True, slots=True)
class Cells:
    """The titles of the columns with any text, and their texts, row by row."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[bool, ...]


def cells_of(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> Cells:
    """The texts of ``rows`` in ``columns``, with dashes for missing ones."""
    texts = [[column.cell(row) for column in columns] for row in rows]
    kept = [n for n in range(len(columns)) if any(line[n] is not None for line in texts)]
    return Cells(
        tuple(columns[n].title for n in kept),
        tuple(tuple(_text(line[n]) for n in kept) for line in texts),
        tuple(columns[n].left for n in kept),
    )


def table_of(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> Table:
    """The table of ``rows`` for a terminal."""
    return render_table(cells_of(rows, columns))


def render_table(cells: Cells) -> Table:
    """The table of ``cells`` for a terminal; names fold in a narrow terminal, numbers never do."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, left in zip(cells.titles, cells.left, strict=True):
        if left:
            table.add_column(title, overflow="fold")
        else:
            table.add_column(title, justify="right", no_wrap=True)
    for row in cells.rows:
        table.add_row(*map(Text, row))
    return table


def _text(cell: str | None) -> str:
    return DASH if cell is None else printable(cell)
