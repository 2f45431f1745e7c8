"""Tables in narrow terminals: the cells of a row are listed below its name.

Here because a squeezed table truncates numbers, or breaks names letter by letter; this form leaves
nothing out. Must not know the meaning of tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Column, Table

# A column of text that may wrap is still readable at this width.
_READABLE = 16

_GAP, _INDENT = 2, "  "


def fitting(table: Table, console: Console) -> RenderableType:
    """``table`` if the console is wide enough for it; else its rows one below another."""
    cells = [[_text(cell) for cell in column.cells] for column in table.columns]
    if not table.columns or _least(table, cells) <= console.width:
        return table
    return Text("\n").join(_lines(table, cells, console.width))


def _least(table: Table, cells: list[list[Text]]) -> int:
    """The columns of the console that a table needs to be readable."""
    widths = [
        _least_of(column, [_heading(table, column), *texts])
        for column, texts in zip(table.columns, cells, strict=True)
    ]
    return sum(widths) + _GAP * (len(widths) - 1)


def _least_of(column: Column, texts: list[Text]) -> int:
    whole = max((text.cell_len for text in texts), default=0)
    return whole if column.no_wrap else min(whole, _READABLE)


def _lines(table: Table, cells: list[list[Text]], width: int) -> Iterator[Text]:
    """Each row: its first cell, and below it the others with their titles."""
    titles = [_heading(table, column) for column in table.columns]
    for first, *others in zip(*cells, strict=True):
        yield Text(first.plain, style="bold", overflow="fold")
        pairs = [
            Text(" ").join(part for part in (Text(title.plain, style="dim"), text) if part.plain)
            for title, text in zip(titles[1:], others, strict=True)
            if text.plain
        ]
        yield from _filled(pairs, width)


def _filled(pairs: list[Text], width: int) -> Iterator[Text]:
    """As many ``pairs`` per line as fit; the console wraps a pair that is longer than a line."""
    line = Text(_INDENT)
    for pair in pairs:
        empty = line.plain == _INDENT
        if not empty and line.cell_len + 3 + pair.cell_len > width:
            yield line
            line, empty = Text(_INDENT), True
        line = Text.assemble(line, "" if empty else " · ", pair)
    if line.plain != _INDENT:
        yield line


def _heading(table: Table, column: Column) -> Text:
    return Text(str(column.header)) if table.show_header else Text("")


def _text(cell: RenderableType) -> Text:
    """The text of a cell; markup has no meaning here."""
    return cell if isinstance(cell, Text) else Text(str(cell))
