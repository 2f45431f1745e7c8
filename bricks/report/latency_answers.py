"""Answers about predicted latencies: how long models take, and which is the fastest, how surely.

Of several models, of the settings of a sweep, of a quantised model next to the original, and of all
that a report shows. Must not compute results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.analysis.ranking import Ranking, ranked
from bricks.compose.estimate import Estimate
from bricks.errors import printable
from bricks.report.agreement import differing
from bricks.report.tables import number, percent, seconds, share_text
from bricks.report.words import (
    count_text,
    limited_up_to,
    limits_text,
    listed,
    place_of,
    place_text,
    setting_text,
    shapes_text,
    source_text,
    sure_text,
    uncertainty_text,
    usual_dimensions,
    value_text,
    verb,
)
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.studies.inference.settings import Setting

if TYPE_CHECKING:
    from bricks.analysis.latency_survey import LatencySurvey, SurveyedModel, SurveyedTarget
    from bricks.studies.inference.prediction import Mix

_UNDECIDED = "undecided"

# So many of the fastest models are named.
NAMED = 3


def best_settings(known: Sequence[PredictedModel], dimensions: Sequence[str]) -> str:
    """The best setting of one model; of several, the fastest, and how often each setting is best.

    ``known`` have estimates, in settings that differ in ``dimensions``. Where batches differ,
    latencies for each sample are compared too.
    """
    if "shapes" in dimensions:
        return _by_shape(known, [name for name in dimensions if name != "shapes"])
    by_model: dict[str, list[PredictedModel]] = {}
    for of in known:
        by_model.setdefault(of.model, []).append(of)
    if len(by_model) > 1:
        models = [*by_model.values()]
        best = [cells[best_of(cells).first] for cells in models]
        ranking = best_of(best)
        first = best[ranking.first]
        among = f"the fastest of {len(models)} models{_place(first, dimensions)}"
        per = " a sample" if "batch" in dimensions else ""
        if ranking.decided:
            where = setting_text(first.setting, dimensions)
            text = f"{first.model} {where} is {among}: {value_text(first.sample_s)}{per}"
        else:
            named = [
                f"{of.model} ({seconds(of.sample_s.value)}{per})"
                for of in (best[n] for n in ranking.order[:NAMED])
            ]
            text = f"{listed(named)} are {among}; their order is undecided"
        return f"{text}; {_wins(models, dimensions)}"
    if "batch" not in dimensions:
        return _fastest(known, dimensions)
    least = min(of.batch for of in known)
    smallest = [of for of in known if of.batch == least]
    return f"{_fastest(smallest, dimensions)}; {_per_sample(known, dimensions)}"


def _by_shape(known: Sequence[PredictedModel], others: Sequence[str]) -> str:
    """What holds of each shape: times of other shapes are other work, of which none is the best."""
    by_shape: dict[Sequence[str], list[PredictedModel]] = {}
    for of in known:
        by_shape.setdefault(of.setting.shapes, []).append(of)
    named = [*by_shape.items()][:NAMED]
    more = len(by_shape) - len(named)
    rest = f"; {count_text(more, 'more shape')} below" if more > 0 else ""
    if others:
        each = (f"at {shapes_text(of)}, {best_settings(cells, others)}" for of, cells in named)
        text = "; ".join(each).replace(", It is", ", it is")
        return f"{text[0].upper()}{text[1:]}{rest}"
    models = dict.fromkeys(of.model for of in known)
    texts = []
    for model in models:
        taken = [
            f"{value_text(of.latency_s)} at {shapes_text(shapes)}"
            for shapes, cells in named for of in cells if of.model == model
        ]  # fmt: skip
        texts.append(f"{model} takes {listed(taken)}" if taken else "")
    return f"{'; '.join(filter(None, texts[:NAMED]))} {place_of(known[0].setting)}{rest}"


def best_of(cells: Sequence[PredictedModel]) -> Ranking:
    """The ranking of one model's settings: of latencies for each sample, if batches differ."""
    return ranked([of.sample_s for of in cells])


def _fastest(cells: Sequence[PredictedModel], dimensions: Collection[str]) -> str:
    ranking = ranked([of.latency_s for of in cells])
    first, place = cells[ranking.first], _place(cells[0], dimensions)
    at = f" at batch {first.batch}" if "batch" in dimensions else ""
    if len(cells) == 1:
        return f"{first.model} takes {value_text(first.latency_s)}{at} {place_of(first.setting)}"
    if not ranking.decided:
        return _undecided(cells, ranking, dimensions, f"{place}{at}")
    second = cells[ranking.order[1]]
    times = number(second.latency_s.value / first.latency_s.value, 1)
    return (
        f"{first.model} is fastest {_phrase(first, dimensions)}{place}:"
        f" {value_text(first.latency_s)}{at}, {_phrase(second, dimensions)} it takes {times} times"
        f" as long (sure: {sure_text(ranking.sure)})"
    )


def _undecided(
    cells: Sequence[PredictedModel], ranking: Ranking, dimensions: Collection[str], where: str
) -> str:
    """The settings among which the fastest is undecided, and the probability of the first."""
    among = [cells[n] for n in ranking.order if n == ranking.first or n in ranking.rivals]
    if len(among) == 1:  # each pair is decided, but not all of them together
        among = [cells[n] for n in ranking.order[:2]]
    texts = [f"{_phrase(of, dimensions)}, {value_text(of.latency_s)}" for of in among]
    return (
        f"It is undecided how {among[0].model} is fastest{where}: {', or '.join(texts)}"
        f" (sure of the first: {sure_text(ranking.sure)})"
    )


def _per_sample(cells: Sequence[PredictedModel], dimensions: Collection[str]) -> str:
    ranking = best_of(cells)
    best = cells[ranking.first]
    where = setting_text(best.setting, dimensions)
    text = f"a sample takes least {where}: {seconds(best.sample_s.value)}"
    if not ranking.decided:
        text = f"where a sample takes least is undecided, perhaps {where}"
    return f"{text} (sure: {sure_text(ranking.sure)})"


def _wins(models: Iterable[Sequence[PredictedModel]], dimensions: Collection[str]) -> str:
    wins = Counter(_winner(cells, dimensions) for cells in models)
    total, undecided = wins.total(), wins.pop(_UNDECIDED, 0)
    texts = [
        f"{count} of {total} {verb(count, 'is', 'are')} fastest {where}"
        for where, count in wins.most_common()
    ]
    if undecided:
        texts.append(f"the best setting of {undecided} of {total} is undecided")
    return listed(texts)


def _winner(cells: Sequence[PredictedModel], dimensions: Collection[str]) -> str:
    ranking = best_of(cells)
    if not ranking.decided:
        return _UNDECIDED
    return setting_text(cells[ranking.first].setting, dimensions)


def _phrase(of: PredictedModel, dimensions: Collection[str]) -> str:
    """The setting without its batch."""
    return setting_text(of.setting, [name for name in dimensions if name != "batch"])


def _place(of: PredictedModel, dimensions: Collection[str]) -> str:
    """What all settings have in common, with a space before it; empty without anything."""
    text = setting_text(of.setting, set(usual_dimensions(of.setting)) - set(dimensions))
    return f" {text}" if text else ""


# More models are compared in a table alone.
_MOST = 3


@dataclass(frozen=True, slots=True)
class QuantisedPair:
    """The estimates of a model as it is, and of the same model ``quantised``."""

    original: PredictedModel
    quantised: PredictedModel

    @property
    def different(self) -> bool:
        """Whether their intervals are apart."""
        one, other = self.original.latency_s, self.quantised.latency_s
        return one.high < other.low or other.high < one.low


def quantised_pairs(known: Sequence[PredictedModel]) -> list[QuantisedPair]:
    """The pairs of a few models; empty for many models, and where either estimate is missing."""
    originals = {of.model: of for of in known if of.setting.quantize is None}
    quantised = [of for of in known if of.setting.quantize is not None]
    if len(quantised) > _MOST or {of.model for of in quantised} != originals.keys():
        return []
    return [QuantisedPair(originals[of.model], of) for of in quantised]


def quantised_text(of: QuantisedPair) -> str:
    """``resnet50 in int8 takes 14.1 ms (±4 %) here with 2 threads, 0.37 of the original's …``."""
    own, other = of.quantised, of.original
    assert isinstance(own.estimate, Estimate), "a pair has estimates"
    place = place_of(replace(own.setting, quantize=None))
    ratio = number(own.latency_s.value / other.latency_s.value)
    times = f"{ratio} of" if of.different else f"which may be as long as ({ratio} of)"
    return (
        f"{own.model} in {own.setting.quantize} takes {value_text(own.latency_s)} {place},"
        f" {times} the original's {value_text(other.latency_s)}:"
        f" {source_text(own.estimate.provenance)}"
    )


def prediction_answer(of: ModelPredictions) -> str:
    """The first line for one model, a ranking of several, or the best of several settings."""
    known = of.estimated
    if mixes := [mix for mix in of.mixes if mix.sizes]:
        return f"{_mixed(mixes)}{_lacking(len(of.mixes) - len(mixes), 'mean')}"
    if not known:
        return f"There is no estimate: {'; '.join(of.errors) or 'no model was named'}"
    lacking = len(of.models) - len(known)
    if of.dimensions == ("quantize",) and (pairs := quantised_pairs(known)):
        return f"{'; '.join(map(quantised_text, pairs))}{_lacking(lacking, 'setting')}"
    if of.swept:
        limits = limited_up_to(known) if of.dimensions == ("batch",) else ""
        best = f"{best_settings(known, of.dimensions)}{limits}{_differing(of)}"
        return f"{best}{_lacking(lacking, 'setting')}"
    text = _one(known[0]) if len(known) == 1 else _fastest_model(known)
    return f"{text}{_lacking(lacking, 'model')}"


def _mixed(mixes: Sequence[Mix]) -> str:
    """The mean and the percentiles of a mix of sizes; of several mixes, of that with the least."""
    means_s = [of.mean_s for of in mixes if of.mean_s is not None]
    ranking = ranked(means_s)
    best, mean_s = mixes[ranking.first], means_s[ranking.first]
    among = f", the least of {len(mixes)} means" if len(mixes) > 1 else ""
    sure = f" (sure: {sure_text(ranking.sure)})" if len(mixes) > 1 else ""
    percentiles = ""
    if best.p50_s is not None and best.p99_s is not None:
        percentiles = f", half of the runs at most {seconds(best.p50_s)} and 99 % at most"
        percentiles += f" {seconds(best.p99_s)}"
    change, extra_s = "", best.change_s
    if extra_s is not None:
        longer = f"{value_text(extra_s)} longer"
        if extra_s.holds(0.0):
            longer = f"no measurable time longer, at most {seconds(extra_s.high)}"
        elif extra_s.value < 0:
            longer = f"{seconds(-extra_s.value)} less"
        change = f"; a run after another size takes {longer}"
    return (
        f"{best.model} takes {value_text(mean_s)} on average over"
        f" {count_text(len(best.sizes), 'size')} {place_of(best.setting)}{among}{sure}"
        f"{percentiles}{change}"
    )


def _one(of: PredictedModel) -> str:
    assert isinstance(of.estimate, Estimate)
    source, device = source_text(of.estimate.provenance), of.estimate.device
    limits = "" if device is None else f", {limits_text(device)}"
    rate = "" if of.setting.copies == 1 else f", together {of.samples_per_s.value:.4g} samples/s"
    return f"{of.model} takes {_latency(of)} {place_of(of.setting)}{rate}{limits}: {source}"


def _latency(of: PredictedModel) -> str:
    text = value_text(of.latency_s)
    if of.usual_s is not None:
        usual = f"{seconds(of.usual_s.low)} to {seconds(of.usual_s.high)} at other times"
        text = f"{text} now, {usual},"
    if of.batch == 1:
        return text
    if of.batch == 0:
        return f"{text} at batch 0, without samples,"
    return f"{text} at batch {of.batch}, {seconds(of.sample_s.value)} a sample,"


def _fastest_model(known: Sequence[PredictedModel]) -> str:
    """The fastest of several models, and how sure their order is."""
    ranking = ranked([of.comparable_s for of in known])
    first, *others = (known[n] for n in ranking.order[:NAMED])
    among = f"the fastest of {len(known)} models {place_of(first.setting)}"
    rest = [f"{of.model} ({seconds(of.latency_s.value)})" for of in others]
    sure = sure_text(ranking.sure)
    if ranking.decided:
        text = f"{first.model} is {among}: {value_text(first.latency_s)}, then {listed(rest)}"
        text = f"{text} (sure: {sure})"
    else:
        timed = f"{seconds(first.latency_s.value)}, {uncertainty_text(first.latency_s)}"
        text = (
            f"{listed([f'{first.model} ({timed})', *rest])} are {among}; {first.model} is the first"
            f" with a probability of {sure}"
        )
    if len(ranking.order) <= NAMED:
        return text
    return f"{text}; the order of {share_text(ranking.decided_share)} of all pairs is decided"


def _differing(of: ModelPredictions) -> str:
    return differing(of.agreements, models=len({model.model for model in of.models}))


def _lacking(count: int, noun: str) -> str:
    if not count:
        return "."
    return f"; {count_text(count, noun)} {verb(count, 'has', 'have')} no estimate."


# A model whose interval is wider, to either side of its latency, counts as uncertain.
UNCERTAIN = 0.10


def uncertain_models(view: SurveyedTarget) -> list[SurveyedModel]:
    """The models with wide intervals, the most uncertain first."""
    widths = {
        model.title: 0.0 if model.estimate is None else model.estimate.relative_uncertainty
        for model in view.estimated
    }
    wide = [model for model in view.estimated if widths[model.title] > UNCERTAIN]
    return sorted(wide, key=lambda model: -widths[model.title])


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
