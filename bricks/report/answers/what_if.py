"""What a model takes without some of its nodes, in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.words import listed, place_text, uncertainty_text, value_text
from bricks.report.tables import seconds
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.analysis.what_if import Removed
    from bricks.system import Target

# Operators that are named with their numbers.
_MOST = 3


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
    texts = [f"{count} {operator}" for operator, count in found[:_MOST]]
    rest = sum(count for _, count in found[_MOST:])
    return listed([*texts, f"{rest} others"] if rest else texts)


def _change(gain: Interval) -> str:
    """The difference to the whole model; neither more nor less where the interval holds 0."""
    if gain.low <= 0 <= gain.high:
        return f"as long as with them within {seconds(gain.half_width)}"
    if gain.value < 0:
        more = Interval(-gain.value, -gain.high, -gain.low)
        return f"{seconds(more.value)} ({uncertainty_text(more)}) more"
    return f"{seconds(gain.value)} ({uncertainty_text(gain)}) less"
