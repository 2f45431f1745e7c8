"""``bricks explain``: where the time of models goes, brick by brick."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli.options import (
    Constructing,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import add, finish, print_json, show
from bricks.cli.predict import NoMeasure, facts_of
from bricks.cli.remedies import Remedies, width_of
from bricks.cli.systems import SystemName
from bricks.cli.warnings import refuse_crowding, warn_of_crowding
from bricks.errors import BricksError, UsageError
from bricks.session.targets import target_called
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.analysis.explain import Explainer
    from bricks.analysis.explanation import Explanation, Part
    from bricks.graph.model import Model
    from bricks.report.wide import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# By default this many bricks are shown: as many as a screen has lines.
_FEW = 24

Every = Annotated[bool, typer.Option("--all", help="Show all bricks, not only the hottest.")]

Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Write the bricks' timeline beside the runtime's own, for ui.perfetto.dev.",
        show_default=False,
    ),
]


@takes_options
def explain(
    options: Constructing,
    system: SystemName = None,
    no_measure: NoMeasure = False,
    every: Every = False,
    trace: Trace = None,
) -> None:
    """Tell where the time of models goes: operators and their bricks, the hottest first.

    Of each brick what it does, the rates that it reaches, how far these are from the machine's
    peaks, and how many other models have it; of each model its peak memory. Example: bricks explain
    resnet50 --threads 2
    """
    from bricks.analysis.explain import Explainer

    with open_workspace(options) as workspace:
        target = workspace.target if system is None else target_called(workspace, system)
        warn_of_crowding(target, options.workers)
        if system is None and not no_measure:
            refuse_crowding(target)
        measure = not no_measure and system is None
        insight = Explainer(workspace, target, measure=measure)
        words: dict[str, str] = {}
        models = decomposed(workspace, read_all(options, words=words))
        if trace is not None and len(models) != 1:
            raise UsageError(
                f"--trace {trace} shows one model, not {len(models)}: name one of them"
            )
        remedies = Remedies.on(target, workspace.target, "explain", options)
        answers = [_row(insight, model, remedies, words) for model in models]
        rows = [row for row, _ in answers]
        traced = None
        if trace is not None:
            traced = _traced(workspace, models[0], target, trace, run=measure)
    if options.json:
        print_json(
            {
                "system": target.system.to_json(),
                "runtime": target.runtime.to_json(),
                "granularity": options.granularity,
                "workers": options.workers,
                "models": rows,
                "trace": traced,
            }
        )
    else:
        from bricks.report.explanation import explanation_lines
        from bricks.report.wide import estimate_lines

        told = [(row, shown) for row, shown in answers if row["bricks"]]
        for number, (row, shown) in enumerate(told):
            show(*([""] if number else []), *explanation_lines(row, None if every else _FEW))
            show(*estimate_lines([] if shown is None else [shown]))
        if traced is not None and traced["error"] is None:
            show("", f"{traced['file']}: open it in ui.perfetto.dev")
            add(*traced["remarks"])
    errors = [row["error"] for row in (*rows, traced) if row is not None]
    finish(dict.fromkeys(error for error in errors if error is not None))


def _traced(
    workspace: Workspace, model: Model | Unread, target: Target, file: Path, *, run: bool
) -> dict[str, Any]:
    """Write the model's trace; print remarks on it, or why there is none."""
    from bricks.analysis.trace import traced
    from bricks.report.trace import trace_text
    from bricks.report.trace_remarks import remarks

    facts: dict[str, Any] = {"file": str(file), "remarks": [], "error": None}
    if isinstance(model, Unread):
        return {**facts, "error": model.error}
    try:
        found = traced(workspace, model, run=run, target=target)
        file.write_text(trace_text(found), encoding="utf-8")
    except BricksError as error:
        return {**facts, "error": str(error)}
    except OSError as exc:
        why = f"{file} cannot be written ({exc.strerror}): give --trace another file"
        return {**facts, "error": why}
    return {**facts, "remarks": [text for lines in remarks(found).values() for text in lines]}


def _row(
    insight: Explainer, model: Model | Unread, remedies: Remedies, words: Mapping[str, str]
) -> tuple[dict[str, Any], ShownEstimate | None]:
    """The facts of a model, and its estimate if there is one."""
    from bricks.compose.estimate import Estimate

    nothing: dict[str, Any] = {
        "model": model.name,
        **facts_of(None),
        "fastest_s": None,
        "peaks": {"flops_per_s": None, "bytes_per_s": None, "levels": []},
        "operators": [],
    }
    if isinstance(model, Unread):
        return {**nothing, "error": model.error}, None
    try:
        found = insight.explain(model)
    except BricksError as error:
        return {**nothing, "error": str(error)}, None
    shown = None
    if isinstance(found.estimate, Estimate):
        shown = remedies.shown(model.name, found.estimate, words[model.digest])
    return {**nothing, **_facts(found), **width_of(shown)}, shown


def _facts(found: Explanation) -> dict[str, Any]:
    return {
        **facts_of(found.estimate, found.memory),
        "fastest_s": found.fastest_s,
        "peaks": {
            "flops_per_s": found.peaks.flops_per_s,
            "bytes_per_s": found.peaks.bytes_per_s,
            "levels": [
                {"size_bytes": level.size_bytes, "bytes_per_s": level.bytes_per_s}
                for level in found.peaks.levels
            ],
        },
        "operators": [
            {
                "operator": group.operator,
                "bricks": group.bricks,
                "occurrences": group.occurrences,
                "total_s": group.total_s,
                "share": group.share,
                "lost_s": group.lost_s,
            }
            for group in found.operators
        ],
        "bricks": [_brick(part) for part in found.parts],
    }


def _brick(part: Part) -> dict[str, Any]:
    fastest = part.fastest
    return {
        "brick": part.brick,
        "operator": part.operator,
        "shapes": part.shapes,
        "occurrences": part.occurrences,
        "latency_s": part.latency_s,
        "total_s": part.total_s,
        "share": part.share,
        "predicted": part.predicted,
        "flops": part.flops,
        "bytes": part.bytes,
        "intensity": part.intensity,
        "flops_per_s": part.flops_per_s,
        "bytes_per_s": part.bytes_per_s,
        "peak_share": part.peak_share,
        "bound": part.bound,
        "values": dict(part.values),
        "models": part.models,
        "lost_s": part.lost_s,
        "fastest": None
        if fastest is None
        else {
            "brick": fastest.brick,
            "target": fastest.target,
            "latency_s": fastest.latency_s,
        },
    }
