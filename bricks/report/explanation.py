"""Latency of a model by operator and brick, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from bricks.analysis.explained import ExplainedModel
from bricks.analysis.explanation import OperatorPart, Part
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import printable
from bricks.report.columns import DASH, Column, part_column, table_of
from bricks.report.figures import value_text
from bricks.report.prediction import memory_remarks, phase_lines
from bricks.report.tables import (
    billions,
    measured_text,
    number,
    peak_parts,
    peak_size,
    percent,
    seconds,
)
from bricks.report.values import value_lines
from bricks.session.machine_peaks import Peaks

# Bricks that together take less than this share of a model are one line at the end.
_REST = 0.02

# The maximum width of the first column: beyond it, figures are far from their names.
_WIDEST = 56


def explanation_lines(model: ExplainedModel, most: int | None) -> list[Text | Table | str]:
    """The explanation of one model; at most ``most`` of its bricks (None: all)."""
    lines: list[Text | Table | str] = [
        f"{_head(model)}; peaks of the machine: {_peaks(model.peaks)}",
        explanation_table(model, most),
    ]
    lost_s = sum(part.lost_s for part in model.parts)
    if lost_s and model.interval is not None and model.interval.value:
        lines.append(
            f"With the fastest implementation of each brick that is known here:"
            f" {seconds(model.fastest_s)}, {percent(lost_s / model.interval.value)} less."
        )
    lines += value_lines(model.parts)
    lines += phase_lines(model.model, model.phases)
    if isinstance(model.memory, PeakMemory):
        peak = peak_size(model.memory.peak_bytes, model.memory.unknown)
        lines.append(f"Peak memory: {peak} ({peak_parts(asdict(model.memory))}).")
    lines += memory_remarks(model)
    return lines


def _head(model: ExplainedModel) -> str:
    match model.estimate:
        case Estimate() as of:
            measured = measured_text(of.measured_share, of.published_share)
            return f"{model.model}: {value_text(of.latency_s)}; measured: {measured}"
        case IncompleteEstimate() as of:
            return f"{model.model}: incomplete, {seconds(of.measured_s)} of it are known"
    return model.model


def _peaks(of: Peaks) -> str:
    known = [
        f"{of.flops_per_s / 1e9:.3g} GFLOP/s" if of.flops_per_s else None,
        f"{of.bytes_per_s / 1e9:.3g} GB/s" if of.bytes_per_s else None,
    ]
    return ", ".join(rate for rate in known if rate) or "not measured"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table: an operator, one of its bricks (``part``), or the rest of its bricks."""

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
    Column("places", lambda line: line.occurrences),
    Column("latency", lambda line: seconds(line.latency_s)),
    _of_part("GFLOP/s", lambda part: billions(part.flops_per_s, ".1f")),
    _of_part("GB/s", lambda part: billions(part.bytes_per_s, ".1f")),
    _of_part("FLOP/byte", lambda part: number(part.intensity, 1)),
    _of_part("of peak", lambda part: percent(part.peak_share, 0)),
    _of_part("bound by", lambda part: part.bound or DASH),
    _of_part("in models", lambda part: str(part.models or DASH)),
)


def explanation_table(model: ExplainedModel, most: int | None) -> Table:
    """Operators, the one that takes longest first, and the bricks of each."""
    shown = _shown(model.parts, most)
    lines = [line for group in model.operators for line in _lines(group, model.parts, shown)]
    table = table_of(lines, _COLUMNS)
    # Keys and shapes are truncated in a narrow terminal, figures never are.
    first = table.columns[0]
    first.no_wrap, first.overflow, first.max_width = True, "ellipsis", _WIDEST
    for row, line in zip(table.rows, lines, strict=True):
        row.style = line.style
    return table


def _lines(group: OperatorPart, parts: Sequence[Part], shown: set[str]) -> Iterator[_Line]:
    """The lines of one operator: its bricks are listed if their keys are ``shown``."""
    yield _Line(group.operator, group.share, str(group.occurrences), group.total_s, style="bold")
    of_operator = [part for part in parts if part.operator == group.operator]
    listed = [part for part in of_operator if part.brick in shown]
    rest = [part for part in of_operator if part.brick not in shown]
    for position, part in enumerate(listed, 1):
        last = position == len(listed) and not rest
        title = f"{'└' if last else '├'} {_short(part)}"
        yield _Line(title, part.share, f"{part.occurrences} ×", part.latency_s, part)
    if rest:
        yield _Line(
            f"└ {len(rest)} more",
            sum(part.share for part in rest),
            str(sum(part.occurrences for part in rest)),
            sum(part.total_s for part in rest),
            style="dim",
        )


def _shown(bricks: Sequence[Part], most: int | None) -> set[str]:
    """Keys of at most ``most`` bricks, until the others take less than ``_REST`` together."""
    if most is None:
        return {brick.brick for brick in bricks}
    shown, left = set(), 1.0
    for brick in bricks[:most]:
        if left < _REST:
            break
        shown.add(brick.brick)
        left -= brick.share
    return shown


def _short(brick: Part) -> str:
    """An unambiguous prefix of a key, and whether the brick was measured."""
    key = f"{brick.brick[:11]}{' (predicted)' if brick.predicted else ''}"
    return printable(f"{key} {brick.shapes}")
