"""``bricks compare``: estimates against whole-model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.cli.command import command
from bricks.cli.options import DetailOptions, EstimateOptions
from bricks.cli.output import finish, print_json, show_answer
from bricks.cli.reading import decomposed, read_all, warn_of_crowding, warn_of_denormals
from bricks.cli.remedies import Remedies
from bricks.cli.workspaces import open_workspace
from bricks.session.defaults import refuse_crowding
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.studies.inference.result import Comparison


@command
def compare(options: EstimateOptions, detail: DetailOptions) -> None:
    """Compare estimates with runs of the whole models, sampled in turn with their bricks.

    Example: bricks compare models/ --threads 1
    """
    from bricks.report.agreement import agreement_remarks, unknown_agreements
    from bricks.report.prediction import (
        comparison_answer,
        comparison_remarks,
        comparison_table,
        quota_remarks,
    )
    from bricks.report.tables import disturbance
    from bricks.report.wide_intervals import estimate_lines
    from bricks.studies.inference.result import ModelComparison
    from bricks.studies.inference.study import compare as compare_models
    from bricks.units.facts import json_of

    with open_workspace(options) as workspace:
        warn_of_crowding(workspace.target, options.parallel.workers)
        refuse_crowding(workspace.target)
        read = read_all(options)
        models = decomposed(workspace, read.models)
        for model in models:
            if not isinstance(model, Unread):
                warn_of_denormals(model)
        result = compare_models(workspace, models)
    words = list(map(read.word, models))
    remedies = Remedies("compare", options)
    shown = [
        remedies.shown(row.model, row.estimate, word) if isinstance(row, ModelComparison) else None
        for row, word in zip(result.rows, words, strict=True)
    ]
    answer = comparison_answer(result)
    if options.general.json:
        print_json({"answer": answer, **json_of(_advised(result, shown))})
    elif result.compared:
        estimates = [estimate for estimate in shown if estimate is not None]
        named = {row.model: word for row, word in zip(result.rows, words, strict=True) if word}
        summary, *details = comparison_remarks(result)
        throttled = [
            line
            for row in result.compared
            for line in quota_remarks(row.model, row.estimate.latency_s, result.target)
        ]
        differing = agreement_remarks(result.agreements, named, result.target.runtime.backend)
        remarks = [
            *differing,
            *estimate_lines(estimates),
            *throttled,
            *disturbance(result),
            summary,
        ]
        remarks += [*details, *unknown_agreements(result.agreements)] if detail.every else []
        if not result.new_models and not any(row.new_bricks for row in result.rows):
            remarks.append("Nothing was run: all latencies were in the cache.")
        show_answer(answer, comparison_table(result), remarks=remarks, every=detail.every)
    finish(result.errors)


def _advised(result: Comparison, shown: Sequence[ShownEstimate | None]) -> Comparison:
    from bricks.report.wide_intervals import advice
    from bricks.studies.inference.result import ModelComparison

    rows = zip(result.rows, shown, strict=True)
    return replace(
        result,
        rows=tuple(
            replace(row, advice=advice(of))
            if isinstance(row, ModelComparison) and of is not None
            else row
            for row, of in rows
        ),
    )
