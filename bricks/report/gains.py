"""Where the time of a model goes, and the gains of replacing or removing its operators.

In one sentence, and as tables for terminals. Must not compute results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.analysis.operator_times import (
    OWN,
    Gain,
    OperatorTime,
    Replacement,
    largest,
    operator_times,
)
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.errors import printable
from bricks.report.tables import Column, part_column, percent, seconds, table_of
from bricks.report.words import limits_text, listed, place_text, uncertainty_text, value_text
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.analysis.explain import ExplainedModel
    from bricks.analysis.explanation import Explanation
    from bricks.analysis.what_if import Removed
    from bricks.system import Target

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
    part_column("of roofline", lambda time: time.peak_share, lambda share: percent(share, 0)),
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
    part_column("latency", lambda row: row[1], lambda time: seconds(time.total.value)),
    part_column("without", lambda row: row[2], lambda time: seconds(time.total.value)),
    part_column("nodes", lambda row: row[1], lambda time: f"{time.occurrences:,}"),
    part_column("nodes without", lambda row: row[2], lambda time: f"{time.occurrences:,}"),
)


def _short(operator: str) -> str:
    return operator if len(operator) <= _WIDEST else f"{operator[: _WIDEST - 1]}…"


# Operators of a brick that a sentence names.
_NAMED = 4

# A share of the roofline beyond this is noise.
_WHOLE = 1.0


def explanation_answer(of: ExplainedModel, target: Target, here: Target) -> str:
    """One sentence, such as ``resnet50 spends 91 % of 38.2 ms (±4 %) in Conv, …``."""
    if of.explanation is None or isinstance(of.estimate, IncompleteEstimate):
        return printable(of.reason or f"{of.model} has no estimate.")
    times = operator_times(of.explanation)
    if not times or of.interval is None:
        return printable(f"{of.model} executes no operator.")
    costliest = times[0]
    spent = (
        f"{of.model} spends {percent(costliest.share, 0)} of {value_text(of.interval)} in"
        f" {_titled(costliest.operator)}"
    )
    place = "this machine" if target.system.key == here.system.key else target.system.name
    if isinstance(of.estimate, Estimate) and of.estimate.device is not None:
        return printable(f"{spent}, {limits_text(of.estimate.device)}.")
    gain, gained = largest(of.gains), ""
    if gain is not None:
        gained = f"; {replaced_by(gain)} would gain {gain_text(gain)}"
    return printable(f"{spent}{_roofline(costliest, place)}{gained}.")


def explanation_answers(models: Sequence[ExplainedModel], target: Target, here: Target) -> str:
    """The sentences of all models."""
    return " ".join(explanation_answer(model, target, here) for model in models)


def _roofline(of: OperatorTime, place: str) -> str:
    if of.peak_share is None:
        return ""
    roof = "peak" if of.bound == "compute" else "bandwidth"
    return f", at {percent(min(_WHOLE, of.peak_share), 0)} of {place}'s {roof}"


def replaced_by(gain: Gain) -> str:
    """The replacement as the subject of a sentence."""
    of = "" if gain.operator is None else f" {_titled(gain.operator)}"
    if gain.replacement is Replacement.ROOFLINE:
        return f"a perfect{of}"
    if gain.replacement is Replacement.INT8:
        return "int8" if gain.operator is None else f"an int8{of}"
    if gain.name is None or gain.name.startswith(OWN):
        return gain.name or f"another{of}"
    return f"{gain.name}'s{of}"


def _titled(operators: str) -> str:
    """The operators of a brick as a sentence has them: of many, the first and the last."""
    names = operators.split("+")
    if len(names) <= _NAMED:
        return operators
    return f"{names[0]}+…+{names[-1]} ({len(names)} operators)"


def gain_text(gain: Gain) -> str:
    """Seconds with their uncertainty, or with ``at most``; a loss, and what is unsure, in words."""
    if gain.seconds.high < 0:
        return f"nothing: {seconds(-gain.seconds.value)} longer"
    if gain.seconds.low < 0:
        return f"unsure, up to {seconds(gain.seconds.high)}"
    if gain.bound:
        return f"at most {seconds(gain.seconds.value)}"
    return f"{seconds(gain.seconds.value)} ({uncertainty_text(gain.seconds)})"


# Operators that are named with their numbers.
_MOST_NAMED = 3


def removal_answer(of: Removed, target: Target, here: Target) -> str:
    """A sentence such as ``net without 26 Relu takes 3.50 ms (±5 %) here with 2 threads, …``."""
    if of.what_if is None or of.nodes is None:
        return printable(of.error or f"{of.model} has no estimate.")
    operators = counted((*of.nodes.bypassed, *of.nodes.given))
    takes = f"takes {value_text(of.what_if.edited.latency_s)} {place_text(target, here)}"
    return printable(f"{of.model} without {operators} {takes}, {_change(of.what_if.gain)}.")


def removal_answers(models: Sequence[Removed], target: Target, here: Target) -> str:
    """The sentences of all models."""
    return " ".join(removal_answer(model, target, here) for model in models)


def removal_remarks(of: Removed) -> list[str]:
    """What removing means for the nodes of a model."""
    if of.nodes is None:
        return []
    lines = []
    if of.nodes.bypassed:
        lines.append(f"Bypassed: {counted(of.nodes.bypassed)}. Their readers get their input.")
    if of.nodes.given:
        lines.append(
            f"Results given: {counted(of.nodes.given)}. They cost nothing; the runtime fuses and"
            " lays out what is around them anew."
        )
    return lines


def counted(operators: Sequence[str]) -> str:
    """Operators with their numbers: ``26 Relu and 8 Concat``."""
    found = Counter(operators).most_common()
    texts = [f"{count} {operator}" for operator, count in found[:_MOST_NAMED]]
    rest = sum(count for _, count in found[_MOST_NAMED:])
    return listed([*texts, f"{rest} others"] if rest else texts)


def _change(gain: Interval) -> str:
    """The difference to the whole model; neither more nor less where the interval holds 0."""
    if gain.low <= 0 <= gain.high:
        return f"as long as with them within {seconds(gain.half_width)}"
    if gain.value < 0:
        more = Interval(-gain.value, -gain.high, -gain.low)
        return f"{seconds(more.value)} ({uncertainty_text(more)}) more"
    return f"{seconds(gain.value)} ({uncertainty_text(gain)}) less"
