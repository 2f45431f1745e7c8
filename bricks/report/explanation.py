"""Where a model's time goes, for terminals, from the same data that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from bricks.errors import printable
from bricks.report.tables import (
    Row,
    measured_text,
    memory_remarks,
    number,
    peak_parts,
    peak_size,
    percent,
    phase_lines,
    seconds,
)
from bricks.report.values import value_lines

# Bricks that together take less than this share of a model are one line at the end.
_REST = 0.02

# The maximum width of the first column: beyond it, figures are far from their names.
_WIDEST = 56


def explanation_lines(row: Row, most: int | None) -> list[Text | Table | str]:
    """The explanation of one model; at most this many of its bricks (None: all)."""
    peaks = row["peaks"]
    known = [
        f"{peaks['flops_per_s'] / 1e9:.3g} GFLOP/s" if peaks["flops_per_s"] else None,
        f"{peaks['bytes_per_s'] / 1e9:.3g} GB/s" if peaks["bytes_per_s"] else None,
    ]
    reached = ", ".join(each for each in known if each) or "not measured"
    if row["estimate_s"] is None:
        head = f"{row['model']}: incomplete, {seconds(row['measured_s'])} of it are known"
    else:
        interval = f"{seconds(row['low_s'])} … {seconds(row['high_s'])}"
        measured = measured_text(row["measured_share"], row["published_share"])
        head = f"{row['model']}: {seconds(row['estimate_s'])} ({interval}); measured: {measured}"
    lines: list[Text | Table | str] = [
        f"{head}; peaks of the machine: {reached}",
        explanation_table(row, most),
    ]
    lost = sum(brick["lost_s"] for brick in row["bricks"])
    if lost and row["estimate_s"]:
        lines.append(
            f"With the fastest implementation of each brick that is known here:"
            f" {seconds(row['fastest_s'])}, {percent(lost / row['estimate_s'])} less."
        )
    lines += value_lines(row["bricks"])
    lines += phase_lines(row)
    if row["peak_bytes"] is not None:
        peak = peak_size(row["peak_bytes"], row["memory"]["unknown"])
        lines.append(f"Peak memory: {peak} ({peak_parts(row['memory'])}).")
    lines += memory_remarks(row)
    return lines


def explanation_table(row: Row, most: int | None) -> Table:
    """Operators, the one that takes longest first, and the bricks of each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    # Keys and shapes are truncated where a terminal is narrow: figures never are.
    table.add_column("operator and brick", no_wrap=True, overflow="ellipsis", max_width=_WIDEST)
    for title in (
        "share", "places", "latency", "GFLOP/s", "GB/s", "FLOP/byte", "of peak", "bound by",
        "in models",
    ):  # fmt: skip
        table.add_column(title, justify="right", no_wrap=True)
    shown = _shown(row["bricks"], most)
    for group in row["operators"]:
        table.add_row(
            Text(printable(group["operator"]), style="bold"),
            percent(group["share"]),
            str(group["occurrences"]),
            seconds(group["total_s"]),
        )
        mine = [brick for brick in row["bricks"] if brick["operator"] == group["operator"]]
        those = [brick for brick in mine if brick["brick"] in shown]
        rest = [brick for brick in mine if brick["brick"] not in shown]
        for number_, brick in enumerate(those):
            last = number_ == len(those) - 1 and not rest
            table.add_row(Text(f"{'└' if last else '├'} {_short(brick)}"), *_cells(brick))
        if rest:
            table.add_row(
                Text(f"└ {len(rest)} more"),
                percent(sum(brick["share"] for brick in rest)),
                str(sum(brick["occurrences"] for brick in rest)),
                seconds(sum(brick["total_s"] for brick in rest)),
                style="dim",
            )
    return table


def _shown(bricks: Sequence[Row], most: int | None) -> set[str]:
    if most is None:
        return {brick["brick"] for brick in bricks}
    shown, left = set(), 1.0
    for brick in bricks[:most]:
        if left < _REST:
            break
        shown.add(brick["brick"])
        left -= brick["share"]
    return shown


def _short(brick: Row) -> str:
    """An unambiguous prefix of a key, and whether the brick was measured."""
    key = f"{brick['brick'][:11]}{' (predicted)' if brick['predicted'] else ''}"
    return printable(f"{key} {brick['shapes']}")


def _cells(brick: Row) -> tuple[str, ...]:
    return (
        percent(brick["share"]),
        f"{brick['occurrences']} ×",
        seconds(brick["latency_s"]),
        _giga(brick["flops_per_s"]),
        _giga(brick["bytes_per_s"]),
        "–" if brick["intensity"] is None else number(brick["intensity"], 1),
        percent(brick["peak_share"], 0),
        brick["bound"] or "–",
        str(brick["models"]) if brick["models"] else "–",
    )


def _giga(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e9:.1f}"
