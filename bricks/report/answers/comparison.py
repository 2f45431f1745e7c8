"""The answer of ``compare``: how far estimates are from runs of the whole models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.report.agreement import differing
from bricks.report.answers.words import value_text, verb
from bricks.report.figures import count_text
from bricks.report.tables import percent, seconds
from bricks.samples.statistics import median

if TYPE_CHECKING:
    from bricks.studies.inference.result import Comparison, ModelComparison


def comparison_answer(of: Comparison) -> str:
    """The error of one estimate, or the greatest and the median one of several.

    ``9 estimates are within 4.9 % of runs, 0.5 % in the median; 8 of 9 intervals hold the run.``
    """
    compared, failed = of.compared, len(of.errors)
    if not compared:
        return f"Nothing was compared: {'; '.join(of.errors) or 'no model was named'}"
    text = _one(compared[0]) if len(compared) == 1 else _several(compared)
    if of.copies > 1:
        text = f"With {of.copies} copies at once, {text}"
    text += differing(of.agreements, of.target.runtime.backend, models=len(compared))
    if not failed:
        return f"{text}."
    return f"{text}; {count_text(failed, 'model')} {verb(failed, 'has', 'have')} no comparison."


def _one(of: ModelComparison) -> str:
    side = "below" if of.ratio < 1 else "above"
    where = "inside" if of.checked.inside else "outside"
    return (
        f"{of.model} is estimated at {value_text(of.estimate.latency_s)},"
        f" {percent(of.checked.error)} {side} the measured {seconds(of.measured_s.value)},"
        f" which is {where} the interval"
    )


def _several(compared: Sequence[ModelComparison]) -> str:
    errors = [of.checked.error for of in compared]
    hits = sum(of.checked.inside for of in compared)
    return (
        f"{len(compared)} estimates are within {percent(max(errors))} of runs,"
        f" {percent(median(errors))} in the median; {hits} of {len(compared)} intervals hold the"
        " run"
    )
