"""``bricks compare``: estimates against whole-model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.cli.command import command
from bricks.cli.options import EstimateOptions
from bricks.cli.output import finish, print_json, show, show_notes
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.warnings import warn_of_crowding, warn_of_denormals
from bricks.cli.workspaces import open_workspace
from bricks.session.crowding import refuse_crowding
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.studies.inference.result import Comparison


@command
def compare(options: EstimateOptions) -> None:
    """Compare estimates with runs of the whole models, sampled in turn with their bricks.

    Example: bricks compare models/ --threads 1
    """
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
    shown = _shown(result, options, list(map(read.word, models)))
    if options.general.json:
        print_json(json_of(_advised(result, shown)))
    elif result.compared:
        _show(result, [estimate for estimate in shown if estimate is not None])
    finish(result.errors)


def _shown(
    result: Comparison, options: EstimateOptions, words: Sequence[str | None]
) -> list[ShownEstimate | None]:
    """The estimate of each row, with the command that would narrow its interval."""
    from bricks.studies.inference.result import ModelComparison

    remedies = Remedies("compare", options)
    return [
        remedies.shown(row.model, row.estimate, word) if isinstance(row, ModelComparison) else None
        for row, word in zip(result.rows, words, strict=True)
    ]


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


def _show(result: Comparison, shown: Sequence[ShownEstimate]) -> None:
    from bricks.report.comparison import comparison_parts
    from bricks.report.tables import disturbance
    from bricks.report.wide_intervals import estimate_lines

    show(*comparison_parts(result))
    show_notes(*disturbance(result))
    show(*estimate_lines(shown))
    if not result.new_models and not any(row.new_bricks for row in result.rows):
        show_notes("Nothing was run: all latencies were in the cache.")
