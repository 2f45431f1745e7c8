"""Answers of sweeps: the setting in which a model is the fastest, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from bricks.analysis.ranking import Ranking, ranked
from bricks.report.answers.settings import (
    place_of,
    setting_text,
    shapes_text,
    usual_dimensions,
)
from bricks.report.answers.words import listed, sure_text, value_text, verb
from bricks.report.figures import count_text
from bricks.report.tables import number, seconds

if TYPE_CHECKING:
    from bricks.studies.inference.prediction import PredictedModel

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
        return _of_many([*by_model.values()], dimensions)
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
    """The fastest of the settings of one model and batch, which differ in ``dimensions``."""
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
    """The least latency for each sample, and where."""
    ranking = best_of(cells)
    best = cells[ranking.first]
    where = setting_text(best.setting, dimensions)
    text = f"a sample takes least {where}: {seconds(best.sample_s.value)}"
    if not ranking.decided:
        text = f"where a sample takes least is undecided, perhaps {where}"
    return f"{text} (sure: {sure_text(ranking.sure)})"


def _of_many(models: Sequence[Sequence[PredictedModel]], dimensions: Sequence[str]) -> str:
    """The fastest model in its best setting, and for how many models each setting is best."""
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


def _wins(models: Iterable[Sequence[PredictedModel]], dimensions: Collection[str]) -> str:
    """How many models are fastest in each setting."""
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
