"""``bricks explain``: where the time of models goes, and what replacing it would gain.

With ``--without``, the latency of models without some of their nodes. Must not know how graphs are
edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import DetailOptions, EstimateOptions, TargetOptions
from bricks.cli.output import finish, print_json, show, show_answer, show_notes
from bricks.cli.predict import asked_target, shown_with, with_advice
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.errors import BricksError, UsageError
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.analysis.explain import ExplainedModel, Explainer
    from bricks.analysis.what_if import Removed
    from bricks.graph.model import Model
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Operators that are shown without --all.
_MOST = 10
# The end of the name of a Chakra execution trace.
_CHAKRA = ".et"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The nodes that a model is explained without, and the file of its bricks' timeline."""

    without: list[str] | None = option(
        "The latency without these nodes: names or operators, with * for any text.",
        default=None, metavar="NODE,…",
    )  # fmt: skip
    trace: Path | None = option(
        "Write the bricks' timeline beside the runtime's own, for ui.perfetto.dev;"
        " FILE.et: alone, as a Chakra execution trace.",
        default=None, metavar="FILE.json|FILE.et", shown=False,
    )  # fmt: skip


@command
def explain(
    options: EstimateOptions, asked: TargetOptions, output: ExplainOptions, detail: DetailOptions
) -> None:
    """Tell where the time of models goes, and what replacing their costliest operators would gain.

    Of each operator its share, how far it is from the machine's roofline, and how much faster
    another runtime's kernels, 8-bit integers or a perfect implementation would be. Of a quantised
    model, what runs in integers, next to the same model in floats if that is named too. With --all,
    also each brick and the peak memory. With --without, the latency of the model without some
    nodes, whose readers get their input, or else their results. Example: bricks explain resnet50
    """
    from bricks.analysis.explain import Explainer, with_float_versions
    from bricks.report.gains import explanation_answers
    from bricks.units.facts import json_of

    if output.without:
        explain_without(options, asked, output.without, detail)
        return
    trace = output.trace
    with open_workspace(options, elsewhere=asked.system is not None) as workspace:
        target, here = asked_target(workspace, options, asked), workspace.target
        measure = not asked.no_measure and asked.system is None
        insight = Explainer(workspace, target, measure=measure)
        read = read_all(options)
        models = decomposed(workspace, read.models)
        if trace is not None and len(models) != 1:
            raise UsageError(
                f"--trace {trace} shows one model, not {len(models)}: name one of them"
            )
        remedies = Remedies.on(target, here, "explain", options)
        explained = with_float_versions(models, [_explained(insight, model) for model in models])
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
                "answer": explanation_answers(explained, target, here),
                **target_facts(target, options),
                "workers": options.parallel.workers,
                "models": json_of(list(map(with_advice, explained, shown))),
                "trace": traced,
            }
        )
    else:
        for of, estimate in zip(explained, shown, strict=True):
            if of.parts:
                _show(of, estimate, target, here, every=detail.every)
        if trace is not None and traced is not None and traced["error"] is None:
            viewer = "a simulator of clusters" if trace.suffix == _CHAKRA else "ui.perfetto.dev"
            show("", f"{traced['file']}: open it in {viewer}")
            show_notes(*traced["remarks"])
    errors = [*(of.reason for of in explained), None if traced is None else traced["error"]]
    finish(dict.fromkeys(error for error in errors if error is not None))


def _explained(insight: Explainer, model: Model | Unread) -> ExplainedModel:
    from bricks.analysis.explain import ExplainedModel

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
        gains=insight.gains(explanation, model),
        integers=insight.integers(model, explanation),
    )


def _show(
    of: ExplainedModel, estimate: ShownEstimate | None, target: Target, here: Target, *, every: bool
) -> None:
    from bricks.analysis.operator_times import operator_times
    from bricks.report.explanation import (
        detail_lines,
        explanation_remarks,
        number_remarks,
        numbers_table,
    )
    from bricks.report.gains import explanation_answer, gains_table, operators_table
    from bricks.report.prediction import quota_remarks
    from bricks.report.wide_intervals import estimate_lines

    assert of.explanation is not None, "it has parts"
    times = operator_times(of.explanation)
    parts: list[Any] = [operators_table(times if every else times[:_MOST])]
    if of.integers is not None:
        parts += ["", "Numbers it computes in", numbers_table(of.integers)]
    if of.gains:
        parts += ["", "What replacing would gain", gains_table(of.gains)]
    if every:
        parts += ["", *detail_lines(of)]
    remarks = number_remarks(of) + estimate_lines([] if estimate is None else [estimate])
    remarks += explanation_remarks(of)
    remarks += quota_remarks(of.model, of.latency_s, target)
    left_out = (
        []
        if every or len(times) <= _MOST
        else [f"{len(times) - _MOST} operators are not shown: add --all."]
    )
    show_answer(
        explanation_answer(of, target, here), *parts, remarks=[*left_out, *remarks], every=every
    )


def _traced(
    workspace: Workspace, model: Model | Unread, target: Target, file: Path, *, run: bool
) -> dict[str, Any]:
    from bricks.analysis.trace import traced
    from bricks.report.chakra import execution_trace
    from bricks.report.trace import trace_notes, trace_text

    chakra = file.suffix == _CHAKRA
    facts: dict[str, Any] = {"file": str(file), "remarks": [], "error": None}
    if isinstance(model, Unread):
        return {**facts, "error": model.error}
    try:
        recorded = traced(workspace, model, run=run and not chakra, target=target)
        content = execution_trace(recorded) if chakra else trace_text(recorded).encode()
        file.write_bytes(content)
    except BricksError as error:
        return {**facts, "error": str(error)}
    except OSError as exc:
        why = f"{file} cannot be written ({exc.strerror}): give --trace another file"
        return {**facts, "error": why}
    notes = {} if chakra else trace_notes(recorded)
    return {**facts, "remarks": [text for lines in notes.values() for text in lines]}


def explain_without(
    options: EstimateOptions, asked: TargetOptions, texts: Sequence[str], detail: DetailOptions
) -> None:
    """Print the latency of each model without the nodes that the patterns in ``texts`` match."""
    from bricks.analysis.explain import Explainer
    from bricks.report.gains import (
        changes_table,
        removal_answer,
        removal_answers,
        removal_remarks,
    )
    from bricks.units.facts import json_of

    patterns = [name for text in texts for name in text.split(",") if name]
    with open_workspace(options, elsewhere=asked.system is not None) as workspace:
        target, here = asked_target(workspace, options, asked), workspace.target
        measure = not asked.no_measure and asked.system is None
        insight = Explainer(workspace, target, measure=measure)
        models = decomposed(workspace, read_all(options).models)
        found = [_removed(insight, model, patterns) for model in models]
    if options.general.json:
        answer = removal_answers(found, target, here)
        facts = target_facts(target, options)
        print_json({"answer": answer, **facts, "models": json_of(found)})
    else:
        for of in found:
            if of.what_if is not None:
                parts: list[Any] = []
                if of.before is not None and of.after is not None:
                    parts.append(changes_table(of.before, of.after, every=detail.every))
                answer, remarks = removal_answer(of, target, here), removal_remarks(of)
                show_answer(answer, *parts, remarks=remarks, every=detail.every)
    finish(dict.fromkeys(of.error for of in found if of.error is not None))


def _removed(insight: Explainer, model: Model | Unread, patterns: Sequence[str]) -> Removed:
    from bricks.analysis.what_if import Removed, removed

    if isinstance(model, Unread):
        return Removed(model.name, tuple(patterns), error=model.error)
    return removed(insight, model, patterns)
