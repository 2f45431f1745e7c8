"""``bricks predict``: the latency of models, recomposed from their bricks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from bricks.cli.command import command
from bricks.cli.options import EstimateOptions, TargetOptions
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.verbosity import Verbosity, verbosity
from bricks.cli.warnings import refuse_crowding, warn_of_crowding
from bricks.cli.workspaces import open_workspace
from bricks.errors import BricksError
from bricks.session.targets import target_called

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.studies.inference.prediction import PredictedModel
    from bricks.system import Target

Predicted = TypeVar("Predicted", bound="PredictedModel")


@command
def predict(options: EstimateOptions, asked: TargetOptions) -> None:
    """Predict how fast models run, from measurements of their bricks.

    Bricks without a measurement are measured first; or predicted, where there are enough to learn
    from and --no-measure, --effort or --budget say so. On a new host, the answer by published
    measurements comes first. With --verbose, also how much memory the models need, which takes no
    measurement. Example: bricks predict resnet50 --threads 2
    """
    from bricks.studies.inference.predicting import PredictionOptions, PredictionStudy, decomposable
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    with open_workspace(options) as workspace:
        target = asked_target(workspace, options, asked)
        read = read_all(options)
        models = read.models
        if asked.system is None:
            models = decomposed(workspace, models)
            if not (
                asked.no_measure or options.general.json or options.measuring.budget_s is not None
            ):
                _answer_at_once(workspace, decomposable(workspace, models))
        study = PredictionStudy(PredictionOptions(models=models, target=target), workspace, note)
        result = ask(study, measure=not asked.no_measure)
        remedies = Remedies.on(target, workspace.target, "predict", options)
        shown = [
            shown_with(remedies, of, read.word(model))
            for of, model in zip(result.models, models, strict=True)
        ]
    if options.general.json:
        advised = tuple(map(with_advice, result.models, shown))
        print_json(json_of(replace(result, models=advised)))
    else:
        _show(result.models, [estimate for estimate in shown if estimate is not None])
    finish(result.errors)


def asked_target(workspace: Workspace, options: EstimateOptions, asked: TargetOptions) -> Target:
    """The target of ``asked``; refuses to measure with more threads than processors."""
    if asked.system is not None:
        target = target_called(workspace, asked.system)
    else:
        target = workspace.target
    warn_of_crowding(target, options.parallel.workers)
    if asked.system is None and not asked.no_measure:
        refuse_crowding(target)
    return target


def shown_with(remedies: Remedies, of: PredictedModel, word: str | None) -> ShownEstimate | None:
    """An estimate with the command that would narrow its interval; None without an estimate."""
    from bricks.compose.estimate import Estimate

    if not isinstance(of.estimate, Estimate):
        return None
    return remedies.shown(of.model, of.estimate, word)


def with_advice(of: Predicted, shown: ShownEstimate | None) -> Predicted:
    """The same model, with advice in words if its interval is wide."""
    from bricks.report.wide_intervals import advice

    return of if shown is None else replace(of, advice=advice(shown))


def _show(models: Sequence[PredictedModel], shown: Sequence[ShownEstimate]) -> None:
    from bricks.report.prediction import memory_remarks, phase_lines, prediction_table
    from bricks.report.wide_intervals import estimate_lines

    if all(of.estimate is None for of in models):
        return
    detailed = verbosity() is Verbosity.VERBOSE
    show(prediction_table(models, memory=detailed))
    show(*(line for of in models for line in phase_lines(of.model, of.phases)))
    show(*estimate_lines(shown))
    if detailed:
        show(*(line for of in models for line in memory_remarks(of)))


# Answers before anything is measured: more than these would be slower than some measurements.
_AT_ONCE = 3


def _answer_at_once(workspace: Workspace, models: Sequence[Model]) -> None:
    """Print estimates by measurements of other hosts, before this new host is measured.

    Nothing is printed once this host has measurements: learning from them takes longer than
    measuring a few more bricks. Nothing is printed without measurements of others.
    """
    from bricks.compose.estimate import Estimate
    from bricks.report.tables import seconds
    from bricks.session import predicting

    if workspace.store.measurements.costs(workspace.target.key):
        return
    for model in models[:_AT_ONCE]:
        with suppress(BricksError):  # said where it is measured
            estimate = predicting.predict(workspace, model, measure=False)
            if isinstance(estimate, Estimate):
                note(
                    f"{model.name}: {seconds(estimate.estimate_s)}"
                    f" ({seconds(estimate.low_s)} … {seconds(estimate.high_s)}) by measurements of"
                    " others; measuring it here"
                )


# Where an estimate comes from: shares of it that add up to 1.
PROVENANCE = ("measured_share", "published_share", "predicted_share")
