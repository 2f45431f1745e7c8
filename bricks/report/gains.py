"""The tables of an explained model: its operators, and what replacing them would gain.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.analysis.gains import Gain, Replacement
from bricks.analysis.operator_times import OperatorTime, operator_times
from bricks.report.answers.explanation import gain_text
from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.tables import percent, seconds

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.analysis.explanation import Explanation

# Longer sequences of operators are cut.
_WIDEST = 30

_OPERATORS: Sequence[Column[OperatorTime]] = (
    Column("operator", lambda time: _short(time.operator), left=True),
    Column("share", lambda time: percent(time.share)),
    Column("nodes", lambda time: f"{time.occurrences:,}"),
    Column("latency", lambda time: seconds(time.total.value)),
    Column("±", lambda time: _own_uncertainty(time)),
    Column("device", lambda time: seconds(time.device_s) if time.device_s else None),
    Column("bound by", lambda time: time.bound, left=True),
    Column("of roofline", lambda time: _percent(time.peak_share)),
)

_WORDS = {
    Replacement.IMPLEMENTATION: "measured implementation",
    Replacement.INT8: "int8, by its roofline",
    Replacement.ROOFLINE: "its roofline",
}

_GAINS: Sequence[Column[Gain]] = (
    Column("replace", lambda gain: _short(gain.operator or "whole model"), left=True),
    Column("by", lambda gain: gain.name or _WORDS[gain.replacement], left=True),
    Column("gains", lambda gain: gain_text(gain)),
)


def _own_uncertainty(of: OperatorTime) -> str | None:
    """The interval of an operator; None on a device, where all have that of the step."""
    known = of.total.value > 0 and of.device_s is None
    return uncertainty_text(of.total) if known else None


def operators_table(times: Sequence[OperatorTime]) -> Table:
    """Operators, a row each, with their share of the time and of the roofline."""
    return table_of(times, _OPERATORS)


def gains_table(gains: Sequence[Gain]) -> Table:
    """What each replacement of the costliest operators would gain."""
    return table_of(gains, _GAINS)


# Operators that are shown next to those of an edited model, unless all are asked for.
_MOST = 10


def changes_table(before: Explanation, after: Explanation, *, every: bool = False) -> Table:
    """The seconds of each operator in a model and in its edited form, the costliest first."""
    left = {time.operator: time for time in operator_times(after)}
    rows = [(time.operator, time, left.pop(time.operator, None)) for time in operator_times(before)]
    added = [(operator, None, time) for operator, time in left.items()]
    shown = [*rows, *added] if every else [*rows[:_MOST], *added[:_MOST]]
    return table_of(shown, _CHANGES)


_Change = tuple[str, OperatorTime | None, OperatorTime | None]

_CHANGES: Sequence[Column[_Change]] = (
    Column("operator", lambda row: _short(row[0]), left=True),
    Column("latency", lambda row: _seconds(row[1])),
    Column("without", lambda row: _seconds(row[2])),
    Column("nodes", lambda row: _nodes(row[1])),
    Column("nodes without", lambda row: _nodes(row[2])),
)


def _seconds(time: OperatorTime | None) -> str | None:
    return None if time is None else seconds(time.total.value)


def _nodes(time: OperatorTime | None) -> str | None:
    return None if time is None else f"{time.occurrences:,}"


def _short(operator: str) -> str:
    return operator if len(operator) <= _WIDEST else f"{operator[: _WIDEST - 1]}…"


def _percent(share: float | None) -> str | None:
    return None if share is None else percent(share, 0)
