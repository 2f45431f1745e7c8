"""``bricks diff``: which bricks became slower or faster from one target to another."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.known import known
from bricks.cli.options import Cache, GranularityText, Json
from bricks.cli.output import finish, print_json, show
from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.analysis.difference import BrickDifference, Difference, ModelDifference
    from bricks.analysis.target_diff import TargetDiff
    from bricks.system.target import Target

Old = Annotated[
    str, typer.Argument(metavar="OLD", help="A target in the cache, as 'bricks systems' names it.")
]
New = Annotated[str, typer.Argument(metavar="NEW", help="The target to compare with it.")]
Those = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=completion.models,
        metavar="[MODEL]…",
        show_default="all that both know",
        help="Models, by name, file or folder.",
    ),
]
FailOn = Annotated[
    str | None,
    typer.Option(
        metavar="3%",
        help="Exit with status 1 if a model is slower by more than this, and beyond noise, or"
        " cannot be compared.",
    ),
]

_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")


def diff(
    old: Old,
    new: New,
    models: Those = None,
    fail_on: FailOn = None,
    granularity: GranularityText = "executed",
    json: Json = False,
    cache: Cache = "cache",
) -> None:
    """Tell which bricks and models are slower or faster on one target than on another.

    Targets are versions of a runtime, numbers of threads, or hosts. Nothing is measured.
    Example: bricks diff onnxruntime-1.23.2 onnxruntime-1.31.1 --fail-on 3%
    """
    from bricks.analysis.target_diff import diff_targets

    most = None if fail_on is None else _share(fail_on)
    with known(cache) as source:
        found = diff_targets(source, old, new, models or [], granularity=granularity)
        bricks = source.plans.load_bricks(_keys(found))
        operators = {key: brick.operators for key, brick in bricks.items()}
    facts = _facts(found, operators, most)
    if json:
        print_json(facts)
    else:
        from bricks.report.difference import difference_parts

        show(*difference_parts(facts))
    finish(_errors(found, most))


def _share(text: str) -> float:
    """``3%`` or ``0.03``; a plain number of 1 or more may be meant either way."""
    found = _SHARE.fullmatch(text.strip())
    value = float(found[1]) if found else 0.0
    if found is None or (not found[2] and value >= 1):
        raise UsageError(f"--fail-on {text!r} is no share: write it like 3% or 0.03")
    return value / 100 if found[2] else value


def _keys(found: TargetDiff) -> list[str]:
    difference = found.difference
    keys = [brick.brick for brick in difference.bricks]
    keys += [c.brick for model in difference.models for c in model.contributions]
    return list(dict.fromkeys(keys))


def _errors(found: TargetDiff, most: float | None) -> list[str]:
    """The reasons for exit status 1: incomparable models; with --fail-on, slower ones."""
    d = found.difference
    errors = [model.error for model in d.incomparable]
    if most is None:
        return errors
    if found.only_old:
        errors.append(
            f"{found.new_name} does not know {', '.join(found.only_old)}: measure there too, or"
            " name the models to compare"
        )
    if d.states_apart:
        errors.append(
            "the machine was not in one state, as its reference workload shows: latencies of two"
            " states cannot be compared, measure both targets again"
        )
    for model in d.unproven(most):
        errors.append(
            f"{model.model}: {100 * model.predicted_share:.1f} % of it is predicted, which proves"
            " nothing: measure all of it on both"
        )
    if slower := d.regressions(most):
        listed = ", ".join(map(_slower, slower))
        errors.append(f"slower by more than {100 * most:g} %: {listed}{_common(d)}")
    return errors


def _slower(model: ModelDifference) -> str:
    """By how much a model is slower, with a note if other processes may be the cause."""
    from bricks.report.tables import NOTABLE_SHARE

    words = f"{model.model} by {100 * (model.ratio.ratio - 1):.1f} %"
    if model.disturbed_share >= NOTABLE_SHARE:
        words += (
            f" ({100 * model.disturbed_share:.0f} % measured while others kept processors busy)"
        )
    return words


def _common(difference: Difference) -> str:
    """A note on the machine, if it may be the cause of all changes."""
    common = difference.common
    if common is None or not common.unusual or common.ratio < 1:
        return ""
    return (
        f"; all bricks together by {100 * (common.ratio - 1):.1f} %, which may be the machine:"
        " measure both again to be sure"
    )


def _facts(
    found: TargetDiff, operators: dict[str, tuple[str, ...]], most: float | None
) -> dict[str, Any]:
    """All facts, for programs; people are shown a part of them."""
    d = found.difference
    return {
        "old": _target(found.old_name, d.old, d.old_state_s),
        "new": _target(found.new_name, d.new, d.new_state_s),
        "states_apart": d.states_apart,
        "granularity": found.granularity,
        "common": d.common and {**asdict(d.common), "unusual": d.common.unusual},
        "models": [_model(model, operators) for model in d.models],
        "incomparable": [asdict(model) for model in d.incomparable],
        "only_old": list(found.only_old),
        "only_new": list(found.only_new),
        "bricks": [_brick(brick, operators) for brick in d.bricks],
        "fail_on": most,
        "regressions": [] if most is None else [m.model for m in d.regressions(most)],
    }


def _target(name: str, target: Target, state_s: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "key": target.key,
        "system": target.system.to_json(),
        "runtime": target.runtime.to_json(),
        "reference_s": state_s,
    }


def _model(model: ModelDifference, operators: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    old, new = model.old, model.new
    return {
        "model": model.model,
        "old_s": old.estimate_s,
        "new_s": new.estimate_s,
        **asdict(model.ratio),
        "predicted_share": model.predicted_share,
        "disturbed_share": model.disturbed_share,
        "other_state_share": max(old.other_state_share, new.other_state_share),
        "call_overhead_difference_s": new.call_overhead_s - old.call_overhead_s,
        "gone_s": model.gone_s,
        "come_s": model.come_s,
        "contributions": [
            {
                **asdict(part),
                "operators": list(operators.get(part.brick, ())),
                "difference_s": part.difference_s,
                "replaced": part.replaced,
            }
            for part in model.contributions
        ],
    }


def _brick(brick: BrickDifference, operators: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        "brick": brick.brick,
        "operators": list(operators.get(brick.brick, ())),
        "old_s": brick.old_s,
        "new_s": brick.new_s,
        **asdict(brick.ratio),
        "rounds": list(brick.rounds),
        "models": list(brick.models),
        "other_state": brick.other_state,
        "disturbed": brick.disturbed,
    }
