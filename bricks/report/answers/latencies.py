"""The answer of a report: how fast its models are, and how many of them are uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.prediction import prediction_answer
from bricks.report.answers.words import place_text, verb
from bricks.report.figures import count_text
from bricks.report.tables import percent, seconds
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.studies.inference.settings import Setting

if TYPE_CHECKING:
    from bricks.analysis.latency_survey import LatencySurvey, SurveyedModel, SurveyedTarget

# A model whose interval is wider, to either side of its latency, counts as uncertain.
UNCERTAIN = 0.10


def uncertain_models(view: SurveyedTarget) -> list[SurveyedModel]:
    """The models with wide intervals, the most uncertain first."""
    widths = {model.title: _width(model) for model in view.estimated}
    wide = [model for model in view.estimated if widths[model.title] > UNCERTAIN]
    return sorted(wide, key=lambda model: -widths[model.title])


def _width(model: SurveyedModel) -> float:
    return 0.0 if model.estimate is None else model.estimate.relative_uncertainty


def report_answer(survey: LatencySurvey) -> str:
    """``resnet50 takes 38.2 ms …``, or ``9 models take 0.31 ms to 1.20 s here …``."""
    view = survey.main
    place = printable(place_text(view.target, survey.here))
    if survey.models == 1:
        return _model_answer(survey)
    known = view.estimated
    parts = [_range(view, place)] if known else []
    wide = len(uncertain_models(view))
    if wide:
        whose = "it is" if len(known) == 1 else f"{wide} {verb(wide, 'is', 'are')}"
        parts.append(f"{whose} uncertain by more than {percent(UNCERTAIN, 0)}")
    elif known:
        whose = "it is not" if len(known) == 1 else "none is"
        parts.append(f"{whose} uncertain by more than {percent(UNCERTAIN, 0)}")
    if lacking := len(view.incomplete):
        parts.append(
            f"{count_text(lacking, 'model')} {verb(lacking, 'lacks', 'lack')} measurements"
        )
    return f"{'; '.join(parts)}."


def _range(view: SurveyedTarget, place: str) -> str:
    """The range of latencies of several models."""
    latencies = [model.estimate.estimate_s for model in view.estimated if model.estimate]
    count = len(latencies)
    low, high = seconds(min(latencies)), seconds(max(latencies))
    ends = low if low == high else f"{low} to {high}"
    return f"{count_text(count, 'model')} {verb(count, 'takes', 'take')} {ends} {place}"


def _model_answer(survey: LatencySurvey) -> str:
    """The sentence of ``bricks predict`` about a single model, or what the model lacks."""
    view = survey.main
    (model,) = view.models
    if model.estimate is None:
        gaps = len(getattr(model.recomposed, "gaps", ()))
        lacks = verb(gaps, "lacks a measurement", "lack measurements")
        place = printable(place_text(view.target, survey.here))
        bricks = count_text(gaps, "brick")
        return f"{printable(model.title)} has no estimate {place}: {bricks} {lacks}."
    runtime = view.target.runtime.backend
    setting = Setting(runtime=runtime, batch=model.batch).on(view.target, survey.here)
    title, estimate = printable(model.title), model.estimate
    predicted = PredictedModel(model=title, estimate=estimate, setting=setting)
    return prediction_answer(
        ModelPredictions(view.target, survey.granularity, workers=1, models=(predicted,))
    )
