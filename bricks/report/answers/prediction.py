"""Answers of ``predict``: how long a model takes, and which of several models is the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.analysis.ranking import Ranking, ranked
from bricks.compose.estimate import Estimate
from bricks.report.agreement import differing
from bricks.report.answers.device import limited_up_to, limits_text
from bricks.report.answers.quantised import quantised_pairs, quantised_text
from bricks.report.answers.settings import place_of
from bricks.report.answers.sweep import NAMED, best_settings
from bricks.report.answers.words import (
    listed,
    source_text,
    sure_text,
    uncertainty_text,
    value_text,
    verb,
)
from bricks.report.figures import count_text
from bricks.report.tables import seconds, share_text

if TYPE_CHECKING:
    from bricks.studies.inference.prediction import Mix, ModelPredictions, PredictedModel


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
    text = _one(known[0]) if len(known) == 1 else _fastest(known)
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
    """``resnet50 takes 38.2 ms (±4 %) here with 2 threads: 100 % measured``."""
    assert isinstance(of.estimate, Estimate)
    source, device = source_text(of.estimate.provenance), of.estimate.device
    limits = "" if device is None else f", {limits_text(device)}"
    return f"{of.model} takes {_latency(of)} {place_of(of.setting)}{_rate(of)}{limits}: {source}"


def _rate(of: PredictedModel) -> str:
    """The samples a second of several copies; empty for one."""
    if of.setting.copies == 1:
        return ""
    return f", together {of.samples_per_s.value:.4g} samples/s"


def _latency(of: PredictedModel) -> str:
    """The latency; of a batch, that of each sample too."""
    text = value_text(of.latency_s)
    if of.usual_s is not None:
        usual = f"{seconds(of.usual_s.low)} to {seconds(of.usual_s.high)} at other times"
        text = f"{text} now, {usual},"
    if of.batch == 1:
        return text
    if of.batch == 0:
        return f"{text} at batch 0, without samples,"
    return f"{text} at batch {of.batch}, {seconds(of.sample_s.value)} a sample,"


def _fastest(known: Sequence[PredictedModel]) -> str:
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
    return f"{text}{_pairs(ranking)}"


def _pairs(ranking: Ranking) -> str:
    """How many pairs are decided, where there are more models than the named ones."""
    if len(ranking.order) <= NAMED:
        return ""
    return f"; the order of {share_text(ranking.decided_share)} of all pairs is decided"


def _differing(of: ModelPredictions) -> str:
    return differing(of.agreements, models=len({model.model for model in of.models}))


def _lacking(count: int, noun: str) -> str:
    """The end of a sentence: how many have no estimate."""
    if not count:
        return "."
    return f"; {count_text(count, noun)} {verb(count, 'has', 'have')} no estimate."
