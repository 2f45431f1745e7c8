"""The comparison of two targets: in one sentence, and for terminals. Must not compute results."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.graph.form import operator_title
from bricks.report.agreement import agreement_remarks, differing, unknown_agreements
from bricks.report.tables import DASH, NOTABLE_SHARE, Column, percent, seconds, table_of
from bricks.report.words import count_text, interval_text, listed, names_text, uncertainty_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.analysis.difference import (
        BrickDifference,
        CommonChange,
        ComparedTarget,
        Contribution,
        Difference,
        ModelDifference,
    )
    from bricks.analysis.significance import Ratio
    from bricks.analysis.target_diff import TargetDiff

# This many are shown; ``--json`` has all.
_MAX_BRICKS, _MAX_PARTS, _MAX_MODELS = 10, 5, 3

# In 80 columns: operators of a brick, and characters of its key.
_OPERATORS, _KEY = 2, 11


def difference_parts(diff: TargetDiff) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    of = diff.difference
    return [*_head(diff), *_models(of), *_bricks(of), *_origins(of)]


def difference_tables(diff: TargetDiff) -> list[RenderableType]:
    """The table of models, and one of the bricks that changed most."""
    of = diff.difference
    if not of.models:
        return []
    parts: list[RenderableType] = [table_of(of.models, _SHORT_MODELS)]
    most = sorted(of.bricks, key=lambda b: (not b.ratio.beyond_noise, -abs(b.new_s - b.old_s)))[
        :_MAX_PARTS
    ]
    return [*parts, "", table_of(most, _SHORT_BRICKS)] if most else parts


def difference_remarks(diff: TargetDiff) -> list[str]:
    """What casts doubt on the difference, and what the short tables leave out."""
    of = diff.difference
    notes = (_predicted, _while_disturbed)
    doubts = [line for model in of.models for note in notes for line in note(model)]
    same = [*agreement_remarks(diff.agreements), *unknown_agreements(diff.agreements)]
    return [*same, *doubts, _counts_of_changes(of.bricks)]


def _head(diff: TargetDiff) -> Iterator[str]:
    of = diff.difference
    for side, target in (("old", of.old), ("new", of.new)):
        yield f"{side}: {target.name} ({target.target.key})"
    yield from agreement_remarks(diff.agreements)
    yield from unknown_agreements(diff.agreements)
    yield _counts_of_changes(of.bricks)
    if of.common is not None:
        yield _common(of.common)
    if once := sum(min(brick.rounds) == 1 for brick in of.bricks):
        yield (
            f"{once} of the bricks were sampled in one round only on a side, which proves little:"
            " a smaller --precision for 'bricks measure' samples them more often."
        )
    if disturbed := sum(brick.disturbed for brick in of.bricks):
        yield (
            f"{disturbed} of the bricks were sampled on a side only while others kept the"
            " processors busy, which proves little: measure again when the host is quiet, in"
            " another --cache."
        )
    for side, names in (("old", diff.only_old), ("new", diff.only_new)):
        if names:
            only = names_text(names, _MAX_PARTS)
            yield f"Only {side} knows, and nothing is compared of: {only}."


def _counts_of_changes(bricks: Sequence[BrickDifference]) -> str:
    slower = sum(brick.ratio.slower for brick in bricks)
    faster = sum(brick.ratio.faster for brick in bricks)
    return (
        f"{len(bricks)} bricks were measured on both: {slower} are slower now, {faster} faster,"
        f" and {len(bricks) - slower - faster} within noise."
    )


def _common(common: CommonChange) -> str:
    ratio = common.ratio
    return (
        f"All together take {_ratio(ratio.value)} times as long (the median;"
        f" {interval_text(ratio, _ratio)}). That is part of every ratio below; it"
        " may be the runtime, or the machine in another session."
        + " It is more than two sessions of one machine mostly differ by."
        * common.unusual
    )


def _models(of: Difference) -> Iterator[RenderableType]:
    if of.models:
        yield ""
        yield table_of(of.models, _model_columns(of.common))
    for model in of.models:
        yield from _predicted(model)
        yield from _while_disturbed(model)
        if model.gone_s or model.come_s:
            removed = sum(not part.new_occurrences for part in model.contributions)
            added = sum(not part.old_occurrences for part in model.contributions)
            yield (
                f"{model.model}: the executed graphs differ: {count_text(removed, 'brick')} that"
                f" took {seconds(model.gone_s)} were replaced by {count_text(added, 'brick')} that"
                f" take {seconds(model.come_s)}."
            )


def _bricks(of: Difference) -> Iterator[RenderableType]:
    slower = [brick for brick in of.bricks if brick.ratio.slower]
    faster = [brick for brick in reversed(of.bricks) if brick.ratio.faster]
    for direction, bricks in (("slower", slower), ("faster", faster)):
        if bricks:
            yield ""
            yield table_of(bricks[:_MAX_BRICKS], BRICK_COLUMNS)
        if len(bricks) > _MAX_BRICKS:
            yield f"… and {len(bricks) - _MAX_BRICKS} more that are {direction}: --json tells."


def _origins(of: Difference) -> Iterator[RenderableType]:
    notable = [m for m in of.models if m.ratio.beyond_noise or m.gone_s or m.come_s]
    notable.sort(key=lambda model: -abs(math.log(model.ratio.interval.value)))
    for model in notable[:_MAX_MODELS]:
        yield from ("", f"Where the difference of {model.model} comes from:", _parts(model))
    if len(notable) > _MAX_MODELS:
        yield f"… and of {len(notable) - _MAX_MODELS} more models: --json tells."


_CHANGE: Column[ModelDifference | BrickDifference] = Column(
    "change", lambda row: f"{100 * (row.ratio.interval.value - 1):+.1f} %"
)

_SHORT_MODELS: Sequence[Column[ModelDifference]] = (
    Column("model", lambda model: model.model, left=True),
    Column("old", lambda model: seconds(model.old.estimate_s)),
    Column("new", lambda model: seconds(model.new.estimate_s)),
    _CHANGE,
    Column("±", lambda model: uncertainty_text(model.ratio.interval, _ratio)),
    Column("", lambda model: _verdict(model), left=True),
)

_SHORT_BRICKS: Sequence[Column[BrickDifference]] = (
    Column("brick", lambda brick: brick.brick[:_KEY], left=True),
    Column("operators", lambda brick: _short(brick.operators), left=True),
    Column("old", lambda brick: seconds(brick.old_s)),
    Column("new", lambda brick: seconds(brick.new_s)),
    _CHANGE,
    Column("", lambda brick: _judged(brick.ratio), left=True),
)


def _short(operators: Sequence[str]) -> str:
    return names_text([operator_title(name) for name in operators], _OPERATORS)


def _judged(ratio: Ratio) -> str:
    if not ratio.beyond_noise:
        return "within noise"
    return "slower" if ratio.slower else "faster"


def _model_columns(common: CommonChange | None) -> Sequence[Column[ModelDifference]]:
    """Estimates on both targets, and the rest of their ratio beyond the common change."""
    return (
        Column("model", lambda model: model.model, left=True),
        Column("old", lambda model: seconds(model.old.estimate_s)),
        Column("new", lambda model: seconds(model.new.estimate_s)),
        *_RATIO,
        Column(
            "beside common",
            lambda model: (
                DASH if common is None else _ratio(model.ratio.interval.value / common.ratio.value)
            ),
        ),
        Column("", _verdict, left=True),
    )


_RATIO: Sequence[Column[ModelDifference | BrickDifference]] = (
    Column("ratio", lambda row: _ratio(row.ratio.interval.value)),
    Column("interval", lambda row: interval_text(row.ratio.interval, _ratio)),
)


def _verdict(model: ModelDifference) -> str:
    held = model.ratio.beyond_noise and bool(model.predicted_share)
    return _judged(model.ratio) + ", if predictions hold" * held


def _predicted(model: ModelDifference) -> Iterator[str]:
    if model.predicted_share:
        yield (
            f"{model.model}: {percent(model.predicted_share)} of an estimate is predicted,"
            " and not measured: the interval allows for that, but it proves nothing."
        )


def _while_disturbed(model: ModelDifference) -> Iterator[str]:
    if model.disturbed_share >= NOTABLE_SHARE:
        yield (
            f"{model.model}: {percent(model.disturbed_share, 0)} of it was only measured"
            " while others kept the processors busy: measure again when the host is quiet."
        )


BRICK_COLUMNS: Sequence[Column[BrickDifference]] = (
    Column("brick", lambda brick: brick.brick, left=True),
    Column("operators", lambda brick: names_text(brick.operators, _MAX_PARTS), left=True),
    Column("old", lambda brick: seconds(brick.old_s)),
    Column("new", lambda brick: seconds(brick.new_s)),
    *_RATIO,
    Column("rounds", lambda brick: "/".join(map(str, brick.rounds))),
    Column("models", lambda brick: names_text(brick.models, _MAX_MODELS), left=True),
)

PART_COLUMNS: Sequence[Column[Contribution]] = (
    Column("brick", lambda part: part.brick, left=True),
    Column("operators", lambda part: names_text(part.operators, _MAX_PARTS), left=True),
    Column("occurrences", lambda part: _occurrences(part)),
    Column("old", lambda part: seconds(part.old_s)),
    Column("new", lambda part: seconds(part.new_s)),
    Column("difference", lambda part: _signed(part.difference_s)),
    Column("", lambda part: _notes(part), left=True),
)


def _occurrences(part: Contribution) -> str:
    counts = dict.fromkeys((part.old_occurrences, part.new_occurrences))
    return " → ".join(map(str, counts))


def _notes(part: Contribution) -> str:
    notes = ["only old"] * (not part.new_occurrences) + ["only new"] * (not part.old_occurrences)
    return ", ".join(notes + ["predicted"] * part.predicted)


def _parts(model: ModelDifference) -> Table:
    shown, others = model.contributions[:_MAX_PARTS], model.contributions[_MAX_PARTS:]
    rest_s = sum(part.difference_s for part in others) + model.call_overhead_difference_s
    table = table_of(shown, PART_COLUMNS)
    table.add_row("all else", "", "", "", "", _signed(rest_s), "")
    return table


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _signed(value_s: float) -> str:
    return ("-" if value_s < 0 else "+") + seconds(abs(value_s))


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
