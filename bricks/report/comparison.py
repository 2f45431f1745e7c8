"""Estimates next to runs of whole models, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.figures import count_text, target_text
from bricks.report.tables import number, percent, seconds

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.studies.inference.result import Comparison, ModelComparison

COLUMNS: Sequence[Column[ModelComparison]] = (
    Column("model", lambda row: row.model, left=True),
    Column("bricks", lambda row: str(row.bricks)),
    Column("new", lambda row: str(row.new_bricks) if row.new_bricks else None),
    Column("measured", lambda row: seconds(row.measured_s.value)),
    Column("estimate", lambda row: seconds(row.estimate.estimate_s)),
    Column("interval", lambda row: uncertainty_text(row.estimate.latency_s)),
    Column("ratio", lambda row: number(row.ratio, 3)),
    Column("in interval", lambda row: "yes" if row.checked.inside else "no"),
)


def comparison_table(of: Comparison) -> Table:
    """A row for each model."""
    return table_of(of.compared, COLUMNS)


def comparison_remarks(of: Comparison) -> list[str]:
    """What bricks stand for and where estimates lean to; then what measuring took."""
    summary = of.summary
    return [
        f"{summary.bricks} bricks stand for {summary.occurrences} occurrences in"
        f" {count_text(summary.models, 'model')}. The geometric mean of ratios is"
        f" {number(summary.geomean_ratio, 3)}; noise of runs is {percent(summary.noise_floor)}.",
        f"{_target(of)}: running each model once takes {number(summary.speedup_latency)} times as"
        f" long as each brick once; measuring the models took {number(summary.speedup_wall)} times"
        f" as long as measuring the bricks ({seconds(summary.models_wall_s)} against"
        f" {seconds(summary.bricks_wall_s)}, everything counted).",
    ]


def _target(of: Comparison) -> str:
    workers = f", {of.workers} workers" if of.workers > 1 else ""
    return f"{target_text(of.target)}{workers}, granularity {of.granularity}"
