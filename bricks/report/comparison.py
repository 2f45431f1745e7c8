"""Estimates next to runs of whole models, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from bricks.report.columns import Column, table_of
from bricks.report.figures import interval_text, target_text
from bricks.report.tables import number, percent, seconds
from bricks.studies.inference.result import Comparison, ModelComparison, Summary

COLUMNS: Sequence[Column[ModelComparison]] = (
    Column("model", lambda row: row.model, left=True),
    Column("bricks", lambda row: str(row.bricks)),
    Column("new", lambda row: str(row.new_bricks)),
    Column("measured", lambda row: seconds(row.measured_s.value)),
    Column("estimate", lambda row: seconds(row.estimate.estimate_s)),
    Column("interval", lambda row: interval_text(row.estimate.latency_s)),
    Column("ratio", lambda row: number(row.ratio, 3)),
)


def comparison_parts(of: Comparison) -> list[RenderableType]:
    """The target, a row for each model, and a summary of all."""
    workers = f", {of.workers} workers" if of.workers > 1 else ""
    return [
        f"{target_text(of.target)}{workers}, granularity {of.granularity}",
        "",
        table_of(of.compared, COLUMNS),
        "",
        *_summary(of.summary),
    ]


def _summary(of: Summary) -> list[str]:
    return [
        f"{of.bricks} bricks stand for {of.occurrences} occurrences in {of.models} models. Error:"
        f" median {percent(of.median_abs_error)}, worst {percent(of.max_abs_error)}, geometric mean"
        f" of ratios {number(of.geomean_ratio, 3)}; noise {percent(of.noise_floor)}.",
        f"Running each model once takes {number(of.speedup_latency)} times as long as each brick"
        f" once; measuring the models took {number(of.speedup_wall)} times as long as measuring the"
        f" bricks ({seconds(of.models_wall_s)} against {seconds(of.bricks_wall_s)}, everything"
        " counted).",
    ]
