"""Numbers with units, and lines and tables for terminals, from the data that ``--json`` prints.

Columns of result rows are described once, for terminals and for pages. In narrow terminals the
cells of a row are listed below its name, because a squeezed table truncates numbers, or breaks
names letter by letter. Must not compute results, nor know the meaning of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.table import Table
from rich.text import Text

from bricks.compose.estimate import LAUNCHING_ASSUMED, DeviceTimes
from bricks.errors import printable
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Column as RichColumn

    from bricks.samples.measurement import Sampling

AnyRow = TypeVar("AnyRow")
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
    part: Callable[[AnyRow], Part | Missing | None],
    text: Callable[[Part], str | None],
    *,
    left: bool = False,
    otherwise: str | None = None,
) -> Column[AnyRow]:
    """A column with the ``text`` of a row's ``part``, or ``otherwise`` if it is missing or None."""

    def cell(row: AnyRow) -> str | None:
        known = part(row)
        return otherwise if known is None or isinstance(known, Missing) else text(known)

    return Column(title, cell, left)


@dataclass(frozen=True, slots=True)
class Cells:
    """The titles of the columns with any text, and their texts, row by row."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[bool, ...]


def cells_of(rows: Sequence[AnyRow], columns: Sequence[Column[AnyRow]]) -> Cells:
    """The texts of ``rows`` in ``columns``, with dashes for missing ones."""
    texts = [[column.cell(row) for column in columns] for row in rows]
    kept = [n for n in range(len(columns)) if any(line[n] is not None for line in texts)]
    return Cells(
        tuple(columns[n].title for n in kept),
        tuple(tuple(_text(line[n]) for n in kept) for line in texts),
        tuple(columns[n].left for n in kept),
    )


def table_of(rows: Sequence[AnyRow], columns: Sequence[Column[AnyRow]]) -> Table:
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


Row = Mapping[str, Any]

# Smaller parts of an estimate than this are not mentioned.
NOTABLE_SHARE = 0.05

# Answers leave out sources of a smaller share of an estimate.
SOURCE_SHARE = 0.02

# Load of other processes below this is normal for an operating system.
NOTABLE_CORES = 0.1


def seconds(value: float | None) -> str:
    """A duration with a unit that suits it: ``1.23 ms``."""
    if value is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{_three_digits(value * factor)} {unit}"
    return f"{value * 1e9:.0f} ns"


def duration(value: float | None) -> str:
    """A duration that may be long: ``41.0 s``, ``5.1 min``, ``14 h`` or ``3.2 days``."""
    if value is None or value < 120:
        return seconds(value)
    for unit, factor, most in (("min", 60.0, 120), ("h", 3600.0, 48)):
        if value < most * factor:
            return f"{_two_digits(value / factor)} {unit}"
    return f"{_two_digits(value / 86_400)} days"


def size(value: float | None) -> str:
    """A number of bytes with a unit that suits it: ``97.5 MiB``."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits."""
    return "–" if value is None else f"{value:.{digits}f}"


def disturbance(of: Sampling) -> list[str]:
    """Lines about noise, remeasured bricks and lack of memory while measuring; maybe none."""
    lines = []
    if of.foreign_cores is not None and of.foreign_cores >= NOTABLE_CORES:
        lines.append(
            f"Other processes kept {of.foreign_cores:.1f} cores busy: latencies are too high and"
            " uneven. On a quiet host, add --again."
        )
    if of.disturbed_rounds:
        lines.append(f"{of.disturbed_rounds} of {of.rounds} samples were noisy and count less.")
    if of.throttled_rounds:
        lines.append(
            f"{of.throttled_rounds} of {of.rounds} samples were taken while the card was throttled."
        )
    if of.eviction_short:
        lines.append(
            "Too little memory was free to evict the caches: bricks of large models may look too"
            " fast. Free some, or raise the limit."
        )
    if of.separate:
        lines.append(
            f"{len(of.separate)} bricks ran in separate calls, because the runtime cannot run them"
            " with their neighbours: small ones may look too slow."
        )
    return lines


def throttled(model: str, of: DeviceTimes | None) -> list[str]:
    """A line if a part of an estimate is from rounds in which the device's clock was lowered."""
    state = None if of is None else of.throttled
    if of is None or state is None:
        return []
    clock = "" if state.clock_hz is None else f", its clock down to {state.clock_hz / 1e9:.2f} GHz"
    then = "a long run is as slow, a short one need not be"
    if state.unsteady:
        then = "it may run faster; let it cool, and add --again"
    return [
        f"{model}: {share_text(of.throttled_share)} of its kernels' time was measured while the"
        f" card was throttled by {' and '.join(state.throttled_by)}{clock}: {then}."
    ]


def predicted(model: str, share: float | None) -> list[str]:
    """A line if a part of an estimate is predicted."""
    if share is None or share < SOURCE_SHARE:
        return []
    return [
        f"{model}: {percent(share)} of the estimate is predicted from bricks of other models: the"
        " interval allows for that."
    ]


def assumed_launching(name: str, device: DeviceTimes) -> list[str]:
    """A line if launching was not measured on a system with a device."""
    if device.launching != LAUNCHING_ASSUMED:
        return []
    return [f"{name}: what a launch of a kernel costs is assumed, as on other GPUs."]


def measured_text(own: float | None, others: float | None) -> str:
    """The measured shares of an estimate, by origin: ``62 % own, 30 % others``.

    The rest is predicted.
    """
    if own is None:
        return "–"
    shares = notable({"own": own, "others": others or 0.0})
    texts = [f"{share_text(share)} {whose}" for whose, share in shares.items()]
    return ", ".join(texts) or "0 %"


def notable(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of an estimate that are at least :data:`SOURCE_SHARE` of it, rounded."""
    return {name: round(share, 6) for name, share in shares.items() if share >= SOURCE_SHARE}


def share_text(share: float) -> str:
    """A share of an estimate in percent; never rounded to 0 % or 100 %."""
    if share < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= share < 1 else percent(share, 0)


def billions(value: float | None, form: str = ".3g") -> str:
    """A count, or a rate, in units of 1e9; ``form`` is a format of :func:`format`."""
    return "–" if value is None else f"{value / 1e9:{form}}"


def peak_size(peak_bytes: int | None, unknown: Sequence[str]) -> str:
    """A peak memory in bytes; a lower bound if parts are ``unknown``."""
    return f"{'≥ ' if unknown else ''}{size(peak_bytes)}"


def peak_parts(memory: Mapping[str, Any]) -> str:
    """The parts of a peak memory, in bytes by name: ``weights 1.0 MiB, activations …``."""
    parts = [
        f"weights {size(memory['weight_bytes'])}",
        f"activations {size(memory['activation_bytes'])}",
    ]
    if memory["temporary_bytes"]:  # of a recorded program
        parts += [f"{name} {size(memory[f'{key}_bytes'])}" for name, key in _OF_PROGRAMS.items()]
    else:
        names = ("workspace", "runtime", "loading")
        parts += [f"{name} {size(memory[f'{name}_bytes'])}" for name in names]
    return ", ".join(parts)


_OF_PROGRAMS = {
    "gradients": "gradient", "optimiser's state": "optimizer", "temporaries": "temporary",
}  # fmt: skip


_BACKENDS: Sequence[Column[Row]] = (
    Column("runtime", lambda row: row["name"], left=True),
    Column("version", lambda row: row["version"], left=True),
    Column("execution provider", lambda row: row["provider"], left=True),
    Column("state", lambda row: "installed" if row["installed"] else row["missing"], left=True),
)


def backends_table(rows: Sequence[Row]) -> Table:
    """Runtimes, a row each, with the remedy for missing ones."""
    return table_of(rows, _BACKENDS)


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Names and values of ``facts``, one pair a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), Text(printable(_plain(value))))
    return table


def differences_table(names: Sequence[str], facts: Mapping[str, tuple[Any, Any]]) -> Table:
    """The values of ``facts`` that differ between two systems with these ``names``."""
    first, second = names
    columns: list[Column[tuple[str, tuple[Any, Any]]]] = [
        Column("", lambda row: row[0].replace("_", " "), left=True),
        Column(first, lambda row: _plain(row[1][0])),
        Column(second, lambda row: _plain(row[1][1])),
    ]
    return table_of([*facts.items()], columns)


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _two_digits(value: float) -> str:
    return f"{value:.{1 if value < 10 else 0}f}"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


# A column of text that may wrap is still readable at this width.
_READABLE = 16

_GAP, _INDENT = 2, "  "


def fitting(table: Table, console: Console) -> RenderableType:
    """``table`` if the console is wide enough for it; else its rows one below another."""
    cells = [
        [(cell if isinstance(cell, Text) else Text(str(cell))) for cell in column.cells]
        for column in table.columns
    ]
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


def _least_of(column: RichColumn, texts: list[Text]) -> int:
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


def _heading(table: Table, column: RichColumn) -> Text:
    return Text(str(column.header)) if table.show_header else Text("")


MOST = 2


def fewest(remarks: Sequence[str], *, every: bool) -> list[str]:
    """The remarks that are shown: all with ``every``, else the first few, each once.

    The order of ``remarks`` is that of their weight. The last line shown names how many are left.
    """
    unique = list(dict.fromkeys(remarks))
    if every or len(unique) <= MOST:
        return unique
    rest = len(unique) - MOST + 1
    return [*unique[: MOST - 1], f"{rest} more remarks: add --all."]
