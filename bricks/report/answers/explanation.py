"""Where the time of a model goes, and the largest gain of replacing something, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.analysis.gains import OWN, Gain, Replacement, largest
from bricks.analysis.operator_times import OperatorTime, operator_times
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.errors import printable
from bricks.report.answers.device import limits_text
from bricks.report.answers.words import uncertainty_text, value_text
from bricks.report.tables import percent, seconds

if TYPE_CHECKING:
    from bricks.analysis.explained import ExplainedModel
    from bricks.system import Target

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
    return printable(f"{spent}{_roofline(costliest, place)}{_gained(of.gains)}.")


def explanation_answers(models: Sequence[ExplainedModel], target: Target, here: Target) -> str:
    """The sentences of all models."""
    return " ".join(explanation_answer(model, target, here) for model in models)


def _roofline(of: OperatorTime, place: str) -> str:
    """How near to the roofline an operator runs; empty if that is not known."""
    if of.peak_share is None:
        return ""
    roof = "peak" if of.bound == "compute" else "bandwidth"
    return f", at {percent(min(_WHOLE, of.peak_share), 0)} of {place}'s {roof}"


def _gained(gains: Sequence[Gain]) -> str:
    """The largest gain; empty if none is known."""
    gain = largest(gains)
    if gain is None:
        return ""
    return f"; {replaced_by(gain)} would gain {gain_text(gain)}"


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
