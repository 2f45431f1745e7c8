"""Two versions of a runtime, installed where they are missing, and measured by turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.cli.options import CommonOptions
from bricks.cli.output import note
from bricks.cli.reading import DecomposedModel, decompositions, read_all
from bricks.cli.workspaces import opened_workspace, workspace_options
from bricks.errors import ModelError, UsageError
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.analysis.target_diff import TargetDiff
    from bricks.backends.catalogue import RuntimeVersion
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace


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
    """The models that both versions run, and the others."""
    refused: list[Unread] = []
    for workspace in pair:
        results = list(decompositions(workspace, models))
        refused += [result for result in results if isinstance(result, Unread)]
        models = [result.model for result in results if isinstance(result, DecomposedModel)]
    return [model for model in models if not isinstance(model, Unread)], refused
