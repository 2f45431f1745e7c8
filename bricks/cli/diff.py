"""``bricks diff``: what became slower or faster from one version or target to another.

Versions of a runtime are installed where they are missing, and measured by turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.cli.command import command
from bricks.cli.options import (
    CommonOptions,
    DetailOptions,
    GeneralOptions,
    MeasuringOptions,
    ModelOptions,
    RuntimeOptions,
    granularity_option,
    precision_option,
    threads_option,
)
from bricks.cli.output import finish, note, print_json, show_answer
from bricks.cli.reading import DecomposedModel, decompositions, read_all
from bricks.cli.workspaces import known_measurements, opened_workspace, workspace_options
from bricks.errors import ModelError, UsageError
from bricks.session.defaults import PRECISION
from bricks.sources import Unread
from bricks.studies.options import argument, batch_option, option

if TYPE_CHECKING:
    from bricks.analysis.difference import CommonChange, ModelDifference
    from bricks.analysis.target_diff import TargetDiff
    from bricks.backends.catalogue import RuntimeVersion
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace

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
    """The two targets or versions, the models to compare, and what counts as a failure."""

    old: str = argument(
        "RUNTIME==VERSION, or a target in the cache, as 'bricks systems' names it.", metavar="OLD"
    )
    new: str = argument("The version or target to compare with it.", metavar="NEW")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions:
    """How models are measured in two versions of a runtime."""

    threads: int | None = threads_option()
    batch: int | None = batch_option()
    precision: float = precision_option(
        "Sample until the median is known this well (0.01: ±1 %).", PRECISION
    )

    @property
    def changed(self) -> bool:
        """Whether any is given."""
        return self != VersionOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOutput:
    """How the difference is printed."""

    general: GeneralOptions = field(default_factory=GeneralOptions)
    detail: DetailOptions = field(default_factory=DetailOptions)


@command
def diff(asked: DiffOptions, measured: VersionOptions, output: DiffOutput) -> None:
    """Tell which models and bricks are slower or faster in a version of a runtime than in another.

    RUNTIME==VERSION is installed with pip in an environment of its own, once, and the models are
    measured in both versions by turns. Two targets of the cache (versions, numbers of threads,
    hosts) are compared without measuring.
    Example: bricks diff onnxruntime==1.30.0 onnxruntime==1.31.1 resnet50 --fail-on 3%
    """
    from bricks.report.difference import difference_answer
    from bricks.units.facts import facts

    result = _difference(asked, measured, output.general)
    answer = difference_answer(result)
    if output.general.json:
        print_json({"answer": answer, **facts(result)})
    else:
        from bricks.report.difference import difference_parts, difference_remarks, difference_tables

        if output.detail.every:
            show_answer(answer, *difference_parts(result))
        else:
            show_answer(answer, *difference_tables(result), remarks=difference_remarks(result))
    finish(_errors(result))


def _difference(
    asked: DiffOptions, measured: VersionOptions, general: GeneralOptions
) -> TargetDiff:
    from bricks.analysis.target_diff import diff_targets

    if (both := versions_of(asked.old, asked.new)) is not None:
        if not asked.models:
            raise UsageError(f"no model is given to measure in both: {asked.old} {asked.new} MODEL")
        return diff_versions(both, _options(both[0].name, asked, measured, general), asked.fail_on)
    if measured.changed:
        raise UsageError(
            "targets of the cache are compared as they were measured: leave out --threads, --batch"
            " and --precision"
        )
    with known_measurements(general.cache) as source:
        return diff_targets(
            source, asked.old, asked.new, asked.models or [],
            granularity=asked.granularity, fail_on=asked.fail_on,
        )  # fmt: skip


def _options(
    runtime: str, asked: DiffOptions, measured: VersionOptions, general: GeneralOptions
) -> CommonOptions:
    return CommonOptions(
        general=general,
        models=ModelOptions(words=asked.models or [], batch=measured.batch),
        runtime=RuntimeOptions(
            name=runtime, granularity=asked.granularity, threads=measured.threads
        ),
        measuring=MeasuringOptions(precision=measured.precision),
    )


def _errors(result: TargetDiff) -> list[str]:
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


def versions_of(old: str, new: str) -> tuple[RuntimeVersion, RuntimeVersion] | None:
    """The versions that two words name; None if both name targets.

    Raises :class:`UsageError` for anything but two versions of one runtime.
    """
    from bricks.backends.catalogue import RuntimeVersion

    named = [word for word in (old, new) if RuntimeVersion.named(word)]
    if not named:
        return None
    if len(named) == 1:
        raise UsageError(
            f"{named[0]} is a version to be installed and measured, and the other is not: give two,"
            " such as onnxruntime==1.30.0 onnxruntime==1.31.1"
        )
    both = RuntimeVersion.parse(old), RuntimeVersion.parse(new)
    if both[0].name != both[1].name:
        raise UsageError(
            f"{old} and {new} are two runtimes: 'bricks predict MODEL --runtime"
            f" {both[0].name},{both[1].name}' compares these"
        )
    if both[0] == both[1]:
        raise UsageError(f"{old} is given twice: give two versions")
    return both


def diff_versions(
    both: tuple[RuntimeVersion, RuntimeVersion], options: CommonOptions, fail_on: float | None
) -> TargetDiff:
    """Measure the models of ``options`` in both versions.

    Nothing is installed for models of which none can be read: :class:`ModelError` is raised.
    """
    from bricks.analysis.difference import IncomparableModel
    from bricks.analysis.target_diff import diff_models
    from bricks.session.agreement import Agreements
    from bricks.session.defaults import refuse_crowding
    from bricks.session.measuring import measure_in_turn

    for version in both:
        version.check()
    read = read_all(options).models
    if read and (unread := [model for model in read if isinstance(model, Unread)]) == list(read):
        raise ModelError("; ".join(model.error for model in unread))
    for version in both:
        version.install(note)
    opened = opened_workspace(options.general.cache, workspace_options(options))
    with (
        opened as workspace,
        workspace.with_options(version=both[0].version) as old,
        workspace.with_options(version=both[1].version) as new,
    ):
        refuse_crowding(workspace.target)
        models, refused = _decomposable((old, new), read)
        measure_in_turn((old, new), models)
        with Agreements(old, new, check=True) as agreements:
            for model in models:
                agreements.of(model, old.target, new.target)  # which is kept
        diff = diff_models(
            workspace.store, (old.target, new.target), [model.digest for model in models],
            granularity=options.runtime.granularity, fail_on=fail_on,
        )  # fmt: skip
    # Models that one of the two refuses count as others that cannot be compared.
    failed = dict.fromkeys(IncomparableModel(model.name, model.error) for model in refused)
    incomparable = (*failed, *diff.difference.incomparable)
    return replace(diff, difference=replace(diff.difference, incomparable=incomparable))


def _decomposable(
    pair: tuple[Workspace, Workspace], models: Sequence[Model | Unread]
) -> tuple[list[Model], list[Unread]]:
    refused: list[Unread] = []
    for workspace in pair:
        results = list(decompositions(workspace, models))
        refused += [result for result in results if isinstance(result, Unread)]
        models = [result.model for result in results if isinstance(result, DecomposedModel)]
    return [model for model in models if not isinstance(model, Unread)], refused
