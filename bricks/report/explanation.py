"""Details of an explanation: bricks by operator, peaks, memory. Must not compute results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bricks.compose.memory.peak import PeakMemory
from bricks.errors import printable
from bricks.report.answers.device import device_of
from bricks.report.columns import DASH, Column, part_column, table_of
from bricks.report.prediction import memory_remarks, phase_lines
from bricks.report.tables import (
    billions,
    number,
    peak_parts,
    peak_size,
    percent,
    seconds,
)
from bricks.report.values import value_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from bricks.analysis.explained import ExplainedModel
    from bricks.analysis.explanation import OperatorPart, Part
    from bricks.session.machine_peaks import Peaks

# The maximum width of the first column: beyond it, figures are far from their names.
_WIDEST = 56


def detail_lines(model: ExplainedModel) -> list[Text | Table | str]:
    """All bricks of an explained model, below the peaks of a processor; and its memory."""
    lines: list[Text | Table | str] = [explanation_table(model)]
    if device_of(model) is None:
        lines.insert(0, f"{model.model}: peaks of the machine: {_peaks(model.peaks)}")
    lost_s = sum(part.lost_s for part in model.parts)
    if lost_s and model.interval is not None and model.interval.value:
        lines.append(
            f"With the fastest implementation of each brick that is known here:"
            f" {seconds(model.fastest_s)}, {percent(lost_s / model.interval.value)} less."
        )
    if isinstance(model.memory, PeakMemory):
        peak = peak_size(model.memory.peak_bytes, model.memory.unknown)
        lines.append(f"Peak memory: {peak} ({peak_parts(asdict(model.memory))}).")
    return lines


def explanation_remarks(model: ExplainedModel) -> list[str]:
    """Remarks on an explained model: values that decide its time, phases, memory."""
    values = value_lines(model.parts)
    return [*values, *phase_lines(model.model, model.phases), *memory_remarks(model)]


def _peaks(of: Peaks) -> str:
    known = [
        f"{of.flops_per_s / 1e9:.3g} GFLOP/s" if of.flops_per_s else None,
        f"{of.bytes_per_s / 1e9:.3g} GB/s" if of.bytes_per_s else None,
    ]
    return ", ".join(rate for rate in known if rate) or "not measured"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table: an operator, or one of its bricks (``part``)."""

    title: str
    share: float
    occurrences: str
    latency_s: float
    part: Part | None = None
    style: str = ""


def _of_part(title: str, text: Callable[[Part], str]) -> Column[_Line]:
    """A column of bricks, which is empty for operators."""
    return part_column(title, lambda line: line.part, text, otherwise="")


_COLUMNS: Sequence[Column[_Line]] = (
    Column("operator and brick", lambda line: line.title, left=True),
    Column("share", lambda line: percent(line.share)),
    Column("nodes", lambda line: line.occurrences),
    Column("latency", lambda line: seconds(line.latency_s)),
    Column("device", lambda line: _device(line.part)),
    _of_part("GFLOP/s", lambda part: billions(part.flops_per_s, ".1f")),
    _of_part("GB/s", lambda part: billions(part.bytes_per_s, ".1f")),
    _of_part("FLOP/byte", lambda part: number(part.intensity, 1)),
    _of_part("of peak", lambda part: percent(part.peak_share, 0)),
    _of_part("bound by", lambda part: part.bound or DASH),
    _of_part("in models", lambda part: str(part.models or DASH)),
)


def _device(part: Part | None) -> str | None:
    """Seconds of one occurrence's kernels; None for an operator, and for a call without any."""
    return seconds(part.work_s) if part is not None and part.device_s else None


def explanation_table(model: ExplainedModel) -> Table:
    """Operators, the one that takes longest first, and the bricks of each."""
    lines = [line for group in model.operators for line in _lines(group, model.parts)]
    table = table_of(lines, _COLUMNS)
    # Keys and shapes are truncated in a narrow terminal, figures never are.
    first = table.columns[0]
    first.no_wrap, first.overflow, first.max_width = True, "ellipsis", _WIDEST
    for row, line in zip(table.rows, lines, strict=True):
        row.style = line.style
    return table


def _lines(group: OperatorPart, parts: Sequence[Part]) -> Iterator[_Line]:
    """The line of one operator, and those of its bricks."""
    yield _Line(group.operator, group.share, str(group.occurrences), group.total_s, style="bold")
    of_operator = [part for part in parts if part.operator == group.operator]
    for position, part in enumerate(of_operator, 1):
        title = f"{'└' if position == len(of_operator) else '├'} {_short(part)}"
        yield _Line(title, part.share, f"{part.occurrences} ×", part.latency_s, part)


def _short(brick: Part) -> str:
    """An unambiguous prefix of a key, and whether the brick was measured."""
    key = f"{brick.brick[:11]}{' (predicted)' if brick.predicted else ''}"
    return printable(f"{key} {brick.shapes}")
