"""``bricks diff``: which bricks became slower or faster from one target to another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.cli.caches import known_measurements
from bricks.cli.command import command
from bricks.cli.options import CacheOptions, granularity_option
from bricks.cli.output import finish, print_json, show
from bricks.errors import UsageError
from bricks.studies.options import argument, option

if TYPE_CHECKING:
    from bricks.analysis.difference import CommonChange, ModelDifference
    from bricks.analysis.target_diff import TargetDiff


_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")


def _share(flag: str, text: str) -> float:
    """Parse a share: ``3%`` or ``0.03``; a plain number of 1 or more is ambiguous."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) if match else 0.0
    if match is None or (not match[2] and value >= 1):
        raise UsageError(f"{flag} {text!r} is no share: write it like 3% or 0.03")
    return value / 100 if match[2] else value


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The two targets and the models to compare, and the slowdown that counts as a failure."""

    old: str = argument("A target in the cache, as 'bricks systems' names it.", metavar="OLD")
    new: str = argument("The target to compare with it.", metavar="NEW")
    models: list[str] | None = argument(
        "Models, by name, file or folder.",
        default=None, metavar="[MODEL]…", values="models", shown="all that both know",
    )  # fmt: skip
    fail_on: float | None = option(
        "Exit with status 1 if a model is slower by more than this, and beyond noise, or"
        " cannot be compared.",
        default=None, metavar="3%", read=_share,
    )  # fmt: skip
    granularity: str = granularity_option()


@command
def diff(asked: DiffOptions, output: CacheOptions) -> None:
    """Tell which bricks and models are slower or faster on one target than on another.

    Targets are versions of a runtime, numbers of threads, or hosts. Nothing is measured.
    Example: bricks diff onnxruntime-1.23.2 onnxruntime-1.31.1 --fail-on 3%
    """
    from bricks.analysis.target_diff import diff_targets
    from bricks.units.facts import facts

    with known_measurements(output.cache) as source:
        result = diff_targets(
            source, asked.old, asked.new, asked.models or [],
            granularity=asked.granularity, fail_on=asked.fail_on,
        )  # fmt: skip
    if output.json:
        print_json(facts(result))
    else:
        from bricks.report.difference import difference_parts

        show(*difference_parts(result))
    finish(_errors(result))


def _errors(result: TargetDiff) -> list[str]:
    """Reasons for exit status 1: incomparable models; with ``--fail-on``, slower ones."""
    errors = [model.error for model in result.difference.incomparable]
    return errors if result.fail_on is None else [*errors, *_failures(result, result.fail_on)]


def _failures(result: TargetDiff, most: float) -> Iterator[str]:
    """Lines on models that are slower by more than ``most``, or cannot be proven not to be."""
    difference = result.difference
    if result.only_old:
        yield (
            f"{difference.new.name} does not know {', '.join(result.only_old)}: measure there"
            " too, or name the models to compare"
        )
    if difference.states_apart:
        yield (
            "the machine was not in one state, as its reference workload shows: latencies of two"
            " states cannot be compared, measure both targets again"
        )
    for model in difference.unproven(most):
        yield (
            f"{model.model}: {100 * model.predicted_share:.1f} % of it is predicted, which proves"
            " nothing: measure all of it on both"
        )
    if slower := difference.regressions(most):
        listed = ", ".join(map(_slower, slower))
        yield f"slower by more than {100 * most:g} %: {listed}{_common(difference.common)}"


def _slower(model: ModelDifference) -> str:
    """A model and its slowdown, with a note if other processes may be the cause."""
    from bricks.report.tables import NOTABLE_SHARE

    words = f"{model.model} by {100 * (model.ratio.interval.value - 1):.1f} %"
    if model.disturbed_share >= NOTABLE_SHARE:
        words += (
            f" ({100 * model.disturbed_share:.0f} % measured while others kept processors busy)"
        )
    return words


def _common(common: CommonChange | None) -> str:
    """A note on the machine, if it may be the cause of all changes."""
    if common is None or not common.unusual or common.ratio.value < 1:
        return ""
    return (
        f"; all bricks together by {100 * (common.ratio.value - 1):.1f} %, which may be the"
        " machine: measure both again to be sure"
    )
