"""``bricks explain``: where the time of models goes, brick by brick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import EstimateOptions, TargetOptions
from bricks.cli.output import finish, print_json, show, show_notes
from bricks.cli.predict import asked_target, shown_with, with_advice
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.errors import BricksError, UsageError
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.analysis.explain import Explainer
    from bricks.analysis.explained import ExplainedModel
    from bricks.graph.model import Model
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# By default this many bricks are shown: as many as a screen has lines.
_FEW = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """How many bricks are shown, and the file of their timeline."""

    every: bool = option("Show all bricks, not only the hottest.", default=False, flag="--all")
    trace: Path | None = option(
        "Write the bricks' timeline beside the runtime's own, for ui.perfetto.dev.",
        default=None, metavar="FILE.json", shown=False,
    )  # fmt: skip


@command
def explain(options: EstimateOptions, asked: TargetOptions, output: ExplainOptions) -> None:
    """Tell where the time of models goes: operators and their bricks, the hottest first.

    Of each brick what it does, the rates that it reaches, how far these are from the machine's
    peaks, and how many other models have it; of each model its peak memory. Example: bricks explain
    resnet50 --threads 2
    """
    from bricks.analysis.explain import Explainer
    from bricks.units.facts import json_of

    trace = output.trace
    with open_workspace(options) as workspace:
        target = asked_target(workspace, options, asked)
        measure = not asked.no_measure and asked.system is None
        insight = Explainer(workspace, target, measure=measure)
        read = read_all(options)
        models = decomposed(workspace, read.models)
        if trace is not None and len(models) != 1:
            raise UsageError(
                f"--trace {trace} shows one model, not {len(models)}: name one of them"
            )
        remedies = Remedies.on(target, workspace.target, "explain", options)
        explained = [_explained(insight, model) for model in models]
        shown = [
            shown_with(remedies, of, read.word(model))
            for of, model in zip(explained, models, strict=True)
        ]
        traced = None
        if trace is not None:
            traced = _traced(workspace, models[0], target, trace, run=measure)
    if options.general.json:
        print_json(
            {
                **target_facts(target, options),
                "workers": options.parallel.workers,
                "models": json_of(list(map(with_advice, explained, shown))),
                "trace": traced,
            }
        )
    else:
        _show(explained, shown, None if output.every else _FEW)
        if traced is not None and traced["error"] is None:
            show("", f"{traced['file']}: open it in ui.perfetto.dev")
            show_notes(*traced["remarks"])
    errors = [*(of.reason for of in explained), None if traced is None else traced["error"]]
    finish(dict.fromkeys(error for error in errors if error is not None))


def _explained(insight: Explainer, model: Model | Unread) -> ExplainedModel:
    from bricks.analysis.explained import ExplainedModel

    if isinstance(model, Unread):
        return ExplainedModel(model=model.name, failure=model.error)
    try:
        explanation = insight.explain(model)
    except BricksError as error:
        return ExplainedModel(model=model.name, failure=str(error))
    return ExplainedModel(
        model=model.name,
        estimate=explanation.estimate,
        memory=explanation.memory,
        explanation=explanation,
    )


def _show(
    explained: Sequence[ExplainedModel], shown: Sequence[ShownEstimate | None], most: int | None
) -> None:
    from bricks.report.explanation import explanation_lines
    from bricks.report.wide_intervals import estimate_lines

    estimated = [(of, estimate) for of, estimate in zip(explained, shown, strict=True) if of.parts]
    for number, (of, estimate) in enumerate(estimated):
        show(*([""] if number else []), *explanation_lines(of, most))
        show(*estimate_lines([] if estimate is None else [estimate]))


def _traced(
    workspace: Workspace, model: Model | Unread, target: Target, file: Path, *, run: bool
) -> dict[str, Any]:
    """Write the model's trace; return its JSON object, with notes or an error."""
    from bricks.analysis.trace import traced
    from bricks.report.trace import trace_text
    from bricks.report.trace_notes import trace_notes

    facts: dict[str, Any] = {"file": str(file), "remarks": [], "error": None}
    if isinstance(model, Unread):
        return {**facts, "error": model.error}
    try:
        recorded = traced(workspace, model, run=run, target=target)
        file.write_text(trace_text(recorded), encoding="utf-8")
    except BricksError as error:
        return {**facts, "error": str(error)}
    except OSError as exc:
        why = f"{file} cannot be written ({exc.strerror}): give --trace another file"
        return {**facts, "error": why}
    return {
        **facts,
        "remarks": [text for lines in trace_notes(recorded).values() for text in lines],
    }
