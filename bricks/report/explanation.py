"""Latency of a model by operator and brick, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from bricks.analysis.explained import ExplainedModel
from bricks.analysis.explanation import Part
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import printable
from bricks.report.figures import value_text
from bricks.report.prediction import memory_remarks, phase_lines
from bricks.report.tables import (
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


def explanation_table(model: ExplainedModel, most: int | None) -> Table:
    """Operators, the one that takes longest first, and the bricks of each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    # Keys and shapes are truncated where a terminal is narrow: figures never are.
    table.add_column("operator and brick", no_wrap=True, overflow="ellipsis", max_width=_WIDEST)
    for title in (
        "share", "places", "latency", "GFLOP/s", "GB/s", "FLOP/byte", "of peak", "bound by",
        "in models",
    ):  # fmt: skip
        table.add_column(title, justify="right", no_wrap=True)
    shown = _shown(model.parts, most)
    for group in model.operators:
        table.add_row(
            Text(printable(group.operator), style="bold"),
            percent(group.share),
            str(group.occurrences),
            seconds(group.total_s),
        )
        of_operator = [brick for brick in model.parts if brick.operator == group.operator]
        shown_bricks = [brick for brick in of_operator if brick.brick in shown]
        rest = [brick for brick in of_operator if brick.brick not in shown]
        for number_, brick in enumerate(shown_bricks):
            last = number_ == len(shown_bricks) - 1 and not rest
            table.add_row(Text(f"{'└' if last else '├'} {_short(brick)}"), *_cells(brick))
        if rest:
            table.add_row(
                Text(f"└ {len(rest)} more"),
                percent(sum(brick.share for brick in rest)),
                str(sum(brick.occurrences for brick in rest)),
                seconds(sum(brick.total_s for brick in rest)),
                style="dim",
            )
    return table


def _shown(bricks: Sequence[Part], most: int | None) -> set[str]:
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


def _cells(brick: Part) -> tuple[str, ...]:
    return (
        percent(brick.share),
        f"{brick.occurrences} ×",
        seconds(brick.latency_s),
        _giga(brick.flops_per_s),
        _giga(brick.bytes_per_s),
        "–" if brick.intensity is None else number(brick.intensity, 1),
        percent(brick.peak_share, 0),
        brick.bound or "–",
        str(brick.models) if brick.models else "–",
    )


def _giga(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e9:.1f}"
