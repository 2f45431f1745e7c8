"""``bricks predict``: the latency of models, recomposed from their bricks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli.options import (
    Constructing,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import finish, print_json, remark, show
from bricks.cli.remedies import Remedies, width_of
from bricks.cli.systems import SystemName
from bricks.cli.verbosity import Verbosity, verbosity
from bricks.cli.warnings import refuse_crowding, warn_of_crowding
from bricks.errors import BackendError, BricksError, ModelError, WorkerError
from bricks.session.targets import target_called
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate, IncompleteEstimate
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory
    from bricks.graph.model import Model
    from bricks.report.wide import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target

NoMeasure = Annotated[
    bool, typer.Option("--no-measure", help="Use what the cache holds; predict what it lacks.")
]


@takes_options
def predict(
    options: Constructing,
    system: SystemName = None,
    no_measure: NoMeasure = False,
) -> None:
    """Predict how fast models run, from measurements of their bricks.

    Bricks without a measurement are measured first; or predicted, where there are enough to learn
    from and --no-measure, --effort or --budget say so. On a new host, the answer by published
    measurements comes first. With --verbose, also how much memory the models need, which takes no
    measurement. Example: bricks predict resnet50 --threads 2
    """
    from bricks.session import measuring

    with open_workspace(options) as workspace:
        target = workspace.target if system is None else target_called(workspace, system)
        warn_of_crowding(target, options.workers)
        if system is None and not no_measure:
            refuse_crowding(target)
        words: dict[str, str] = {}
        models: Sequence[Model | Unread] = read_all(options, words=words)
        if system is None:
            models = decomposed(workspace, models)
            found = _decomposable(workspace, models)  # all, so that they are predicted at once
            if not no_measure:
                if not options.json and options.budget is None:
                    _answer_at_once(workspace, found)
                done = measuring.measure(workspace, found)
                if options.budget is not None and done.unfinished and not done.new_bricks:
                    remark(
                        f"nothing was measured within {options.budget:g} s, and the answer is from"
                        " measurements of others: give a larger --budget"
                    )
        remedies = Remedies.on(target, workspace.target, "predict", options)
        answers = [_row(workspace, model, target, remedies, words) for model in models]
    rows = [row for row, _ in answers]
    facts = {
        "system": target.system.to_json(),
        "runtime": target.runtime.to_json(),
        "granularity": options.granularity,
        "workers": options.workers,
        "models": rows,
    }
    if options.json:
        print_json(facts)
    else:
        _show(rows, [shown for _, shown in answers if shown is not None])
    finish(row["error"] for row in rows if row["error"] is not None)


def _show(rows: Sequence[dict[str, Any]], shown: Sequence[ShownEstimate]) -> None:
    from bricks.report.tables import has_estimate, memory_remarks, phase_lines, prediction_table
    from bricks.report.wide import estimate_lines

    if not any(map(has_estimate, rows)):
        return
    detailed = verbosity() is Verbosity.VERBOSE
    show(prediction_table(rows, memory=detailed))
    show(*(line for row in rows for line in phase_lines(row)))
    show(*estimate_lines(shown))
    if detailed:
        show(*(line for row in rows for line in memory_remarks(row)))


# Answers before anything is measured: more than these would be slower than some measurements.
_AT_ONCE = 3


def _answer_at_once(workspace: Workspace, models: Sequence[Model]) -> None:
    """On a host where nothing was measured yet, say what is known from others before measuring.

    Later there are measurements of this host, and to learn from them takes longer than a few more.
    Nothing is said where nothing is known.
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
                remark(
                    f"{model.name}: {seconds(estimate.estimate_s)}"
                    f" ({seconds(estimate.low_s)} … {seconds(estimate.high_s)}) by measurements of"
                    " others; measuring it here"
                )


# Where an estimate comes from: shares of it that add up to 1.
PROVENANCE = ("measured_share", "published_share", "predicted_share")

_FIGURES = (
    "estimate_s",
    "low_s",
    "high_s",
    "critical_path_s",
    "call_overhead_s",
    "other_state_share",
    *PROVENANCE,
)


def _decomposable(workspace: Workspace, models: Sequence[Model | Unread]) -> list[Model]:
    """Those that can be decomposed; the rows of the others contain the reason."""
    found = []
    for model in models:
        if not isinstance(model, Unread):
            with suppress(BackendError, ModelError, WorkerError):
                workspace.plans.decompose(model)
                found.append(model)
    return found


_MEMORY_PARTS = (
    "weight_bytes",
    "activation_bytes",
    "workspace_bytes",
    "runtime_bytes",
    "loading_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "temporary_bytes",
)


def _memory_facts(memory: PeakMemory | UnknownMemory | None) -> dict[str, Any]:
    """The peak and its parts; ``unknown`` names what they leave out, ``reason`` why there is none.

    None gives the same keys without values.
    """
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory

    facts: dict[str, Any] = {**dict.fromkeys(_MEMORY_PARTS), "unknown": [], "reason": None}
    peak_bytes = None
    if isinstance(memory, PeakMemory):
        peak_bytes = memory.peak_bytes
        facts |= {name: getattr(memory, name) for name in _MEMORY_PARTS}
        facts["unknown"] = list(memory.unknown)
    elif isinstance(memory, UnknownMemory):
        facts["reason"] = memory.reason
    return {"peak_bytes": peak_bytes, "memory": facts}


def _row(
    workspace: Workspace,
    model: Model | Unread,
    target: Target,
    remedies: Remedies,
    words: Mapping[str, str],
) -> tuple[dict[str, Any], ShownEstimate | None]:
    """The facts of a model, and its estimate if there is one."""
    from bricks.compose.estimate import Estimate
    from bricks.session import peak_memory, predicting

    empty: dict[str, Any] = {"model": model.name, **facts_of(None)}
    if isinstance(model, Unread):
        return {**empty, "error": model.error}, None
    try:
        estimate = predicting.predict(workspace, model, measure=False, target=target)
        memory = peak_memory.predict_memory(workspace, model, target=target)
    except BricksError as error:
        return {**empty, "error": str(error)}, None
    shown = None
    if isinstance(estimate, Estimate):
        shown = remedies.shown(model.name, estimate, words[model.digest])
    facts = {**empty, **facts_of(estimate, memory), **width_of(shown)}
    if facts["error"] is not None:
        from bricks.measure.failure_explanation import explain_failure

        facts["error"] += explain_failure(model, facts["error"])
    return facts, shown


def facts_of(
    estimate: Estimate | IncompleteEstimate | None, memory: PeakMemory | UnknownMemory | None = None
) -> dict[str, Any]:
    """The facts of a model's latency and memory; None gives the same keys without values."""
    facts: dict[str, Any] = {
        **dict.fromkeys(_FIGURES),
        **_memory_facts(memory),
        "missing": [],
        "bricks": [],
        "phases": [],
        "error": None,
        **width_of(None),
    }
    if estimate is None:
        return facts
    from bricks.compose.estimate import IncompleteEstimate

    facts["bricks"] = [
        {
            "brick": s.brick,
            "occurrences": s.occurrences,
            "latency_s": s.latency_s,
            "share": s.share,
            "predicted": s.predicted,
            "published": s.published,
        }
        for s in estimate.shares
    ]
    if isinstance(estimate, IncompleteEstimate):
        gaps = estimate.gaps
        named = ", ".join(f"{g.brick} ({g.reason})" for g in gaps[:3])
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        facts["measured_s"] = estimate.measured_s
        facts["missing"] = [
            {"brick": g.brick, "occurrences": g.occurrences, "reason": g.reason} for g in gaps
        ]
        facts["error"] = f"{estimate.model}: no estimate without {named}{more}"
        return facts
    for name in _FIGURES:
        facts[name] = getattr(estimate, name)
    facts["phases"] = [asdict(phase) for phase in estimate.phases]
    return facts
