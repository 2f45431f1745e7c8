"""``bricks compare``: estimates against whole-model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bricks.cli.options import (
    Constructing,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import add, finish, print_json, show
from bricks.cli.predict import PROVENANCE
from bricks.cli.remedies import Remedies, width_of
from bricks.cli.warnings import refuse_crowding, warn_of_crowding, warn_of_denormals
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.compose.comparison import ComparisonFailure, ModelComparison
    from bricks.report.wide import ShownEstimate
    from bricks.session.summaries import Comparison


@takes_options
def compare(
    options: Constructing,
) -> None:
    """Compare estimates with runs of the whole models, sampled in turn with their bricks.

    Example: bricks compare models/ --threads 1
    """
    from bricks.session import comparing

    with open_workspace(options) as workspace:
        warn_of_crowding(workspace.target, options.workers)
        refuse_crowding(workspace.target)
        words: dict[str, str] = {}
        read = decomposed(workspace, read_all(options, words=words))
        models = [model for model in read if not isinstance(model, Unread)]
        for model in models:
            warn_of_denormals(model)
        result = comparing.compare(workspace, models)
    remedies = Remedies("compare", options)
    compared = iter(result.rows)
    answers = [
        (_unread(model), None)
        if isinstance(model, Unread)
        else _row(next(compared), remedies, words[model.digest])
        for model in read
    ]
    rows = [row for row, _ in answers]
    facts = {
        "system": result.target.system.to_json(),
        "runtime": result.target.runtime.to_json(),
        "granularity": result.granularity,
        "workers": options.workers,
        "models": rows,
        "summary": asdict(result.summary),
    }
    if options.json:
        print_json(facts)
    elif result.summary.models:
        _show(result, rows, [shown for _, shown in answers if shown is not None])
    finish(row["error"] for row in rows if row["error"] is not None)


def _unread(model: Unread) -> dict[str, Any]:
    return {**_nothing(model.name), "error": model.error}


def _nothing(name: str) -> dict[str, Any]:
    names = (
        "nodes", "bricks", "new_bricks", "measured_latency_s", "measured_low_s", "measured_high_s",
        "estimate_s", "low_s", "high_s", "ratio", "coverage", *PROVENANCE,
        "uncertainty", "advice",
    )  # fmt: skip
    return {"model": name, "kind": None, **dict.fromkeys(names)}


def _row(
    row: ModelComparison | ComparisonFailure, remedies: Remedies, word: str
) -> tuple[dict[str, Any], ShownEstimate | None]:
    """The facts of a model that ``word`` names, and its estimate if there is one."""
    from bricks.compose.comparison import ComparisonFailure

    facts = _nothing(row.model)
    if row.plan is not None:
        facts["nodes"], facts["bricks"] = row.plan.nodes, len(row.plan.keys)
        facts["kind"] = row.plan.kind
        facts["new_bricks"] = row.new_bricks
    if isinstance(row, ComparisonFailure):
        return {**facts, "coverage": row.coverage, "error": row.error}, None
    shown = remedies.shown(row.model, row.estimate, word)
    facts |= {
        "measured_latency_s": row.measured_s.value,
        "measured_low_s": row.measured_s.low,
        "measured_high_s": row.measured_s.high,
        "estimate_s": row.estimate.estimate_s,
        "low_s": row.estimate.low_s,
        "high_s": row.estimate.high_s,
        "ratio": row.ratio,
        "coverage": row.estimate.coverage,
        **asdict(row.estimate.provenance),
        **width_of(shown),
        "error": None,
    }
    return facts, shown


def _show(result: Comparison, rows: list[dict[str, Any]], shown: Sequence[ShownEstimate]) -> None:
    from bricks.report.tables import comparison_table, number, percent, seconds
    from bricks.report.wide import estimate_lines

    runtime, summary = result.target.runtime, result.summary
    workers = max((each.estimate.workers for each in shown), default=1)
    show(
        f"{result.target.system.name}, {runtime.backend} {runtime.version},"
        f" {runtime.threads} {'thread' if runtime.threads == 1 else 'threads'},"
        f"{f' {workers} workers,' if workers > 1 else ''} granularity {result.granularity}",
        "",
        comparison_table(rows),
    )
    show(
        "",
        f"{summary.bricks} bricks stand for {summary.occurrences} occurrences in"
        f" {summary.models} models. Error: median {percent(summary.median_abs_error)},"
        f" worst {percent(summary.max_abs_error)}, geometric mean of ratios"
        f" {number(summary.geomean_ratio, 3)}; noise {percent(summary.noise_floor)}.",
        f"Running each model once takes {number(summary.speedup_latency)} times as long as each"
        f" brick once; measuring the models took {number(summary.speedup_wall)} times as long as"
        f" measuring the bricks ({seconds(summary.models_wall_s)} against"
        f" {seconds(summary.bricks_wall_s)}, everything counted).",
    )
    add(*_disturbance(result))
    show(*estimate_lines(shown))
    if not result.new_models and not any(row["new_bricks"] for row in rows):
        add("Nothing was run: all latencies were in the cache.")


def _disturbance(result: Comparison) -> list[str]:
    """Remarks on the load of the host during the measurement."""
    from bricks.report.tables import disturbance

    return disturbance(result)
