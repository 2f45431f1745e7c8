"""Which of two targets is slower, by how much, where and how sure, in one sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.graph.form import operator_title
from bricks.report.agreement import differing
from bricks.report.answers.words import listed, uncertainty_text
from bricks.report.figures import count_text
from bricks.report.tables import NOTABLE_SHARE, percent, seconds

if TYPE_CHECKING:
    from bricks.analysis.difference import ComparedTarget, Difference, ModelDifference
    from bricks.analysis.target_diff import TargetDiff

# So many models are named; the table has all.
_NAMED = 3

# Operators are named that make up at least this share of a difference.
_NOTABLE = 0.2


def difference_answer(diff: TargetDiff) -> str:
    """Sentences such as ``resnet50 takes 3 % less with onnxruntime 1.31.1 than with 1.30.0``."""
    of = diff.difference
    if not of.models:
        return "No model can be compared."
    changed = sorted(
        (model for model in of.models if model.ratio.beyond_noise),
        key=lambda model: -abs(model.ratio.interval.value - 1),
    )
    text = " ".join([*_changed(of, changed), *_unchanged(of, len(changed))])
    but = differing(diff.agreements, models=len(of.models)).removeprefix("; but ")
    return printable(f"{text} But {but}." if but else text)


def _changed(of: Difference, changed: Sequence[ModelDifference]) -> list[str]:
    if not changed:
        return []
    if len(changed) == 1:
        (model,) = changed
        times = f"{seconds(model.new.estimate_s)}, was {seconds(model.old.estimate_s)}"
        return [
            f"{model.model} takes {_change(model)} {_sides(of)} ({times}; {_sureness(of, model)})"
            f"{_where(model)}."
        ]
    first, *others = changed[:_NAMED]
    named = [f"{model.model} {_change(model)}" for model in others]
    more = len(changed) - _NAMED
    named += [f"{count_text(more, 'other model')} less or more"] if more > 0 else []
    sure = "sure" if all(_sureness(of, model) == "sure" for model in changed) else "not all sure"
    return [f"{first.model} takes {_change(first)}, {listed(named)} {_sides(of)} ({sure})."]


def _unchanged(of: Difference, changed: int) -> list[str]:
    same = [model for model in of.models if not model.ratio.beyond_noise]
    if not same:
        return []
    widest = max(same, key=lambda m: m.ratio.interval.high / max(m.ratio.interval.low, 1e-9))
    noise = uncertainty_text(widest.ratio.interval, lambda ratio: f"{ratio:.2f}")
    if changed:
        return [f"{count_text(len(same), 'other model')}: no difference beyond noise ({noise})."]
    names = [model.model for model in same]
    who = listed(names) if len(names) <= _NAMED else count_text(len(names), "model")
    return [f"{who}: no difference beyond noise ({noise}) {_between(of)}."]


def _change(model: ModelDifference) -> str:
    change = model.ratio.interval.value - 1
    digits = 0 if abs(change) >= 0.01 else 1
    return f"{percent(abs(change), digits)} {'more' if change > 0 else 'less'}"


def _sureness(of: Difference, model: ModelDifference) -> str:
    if model.predicted_share:
        return f"not sure: {percent(model.predicted_share, 0)} of it is predicted"
    if model.disturbed_share >= NOTABLE_SHARE:
        return "not sure: others kept the processors busy"
    return "sure"


def _where(model: ModelDifference) -> str:
    """The operators behind most of the difference."""
    whole_s = model.new.estimate_s - model.old.estimate_s
    by_operators: dict[tuple[str, ...], float] = defaultdict(float)
    for part in model.contributions:
        by_operators[part.operators] += part.difference_s
    costliest = max(by_operators, key=lambda name: by_operators[name] / whole_s, default=())
    share = by_operators[costliest] / whole_s if costliest else 0.0
    if share < _NOTABLE:
        return ""
    moved_s = by_operators[costliest]
    sign = "+" if moved_s > 0 else "-"
    names = dict.fromkeys(operator_title(name) for name in costliest)
    return f", most of it in {' + '.join(names)} ({sign}{seconds(abs(moved_s))})"


def _sides(of: Difference) -> str:
    new, old = _names(of)
    preposition = "with" if _versions(of) else "on"
    return f"{preposition} {new} than {preposition} {old}"


def _between(of: Difference) -> str:
    if not _versions(of):
        return f"between {of.old.name} and {of.new.name}"
    old, new = of.old.target.runtime, of.new.target.runtime
    return f"between {old.backend} {old.version} and {new.version}"


def _names(of: Difference) -> tuple[str, str]:
    """The new target and the old one, as a sentence names them."""
    if not _versions(of):
        return of.new.name, of.old.name
    new, old = of.new.target.runtime, of.old.target.runtime
    return f"{new.backend} {new.version}", old.version


def _versions(of: Difference) -> bool:
    """Whether the targets differ by the version of their runtime alone."""
    return _place(of.old) == _place(of.new)


def _place(of: ComparedTarget) -> tuple[object, ...]:
    runtime = of.target.runtime
    return of.target.system.key, runtime.backend, runtime.threads, runtime.optimization
