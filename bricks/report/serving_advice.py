"""Advice for servers, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import RenderableType

from bricks.report.columns import DASH, Column, part_column, table_of
from bricks.report.figures import provenance_text, rate_text
from bricks.report.tables import number, percent, seconds
from bricks.studies.serving.advise import ServingAdvice, ServingAnswer
from bricks.studies.serving.result import ScenarioResult


def serving_advice_parts(answer: ServingAnswer) -> list[RenderableType]:
    """A table of targets that serve models at a rate, with their hosts and costs."""
    load = answer.load
    rows = [advice for advice in answer.answers if isinstance(advice, ServingAdvice)]
    columns: list[Column[ServingAdvice]] = [
        Column("model", lambda row: row.model, left=True),
        Column("system", lambda row: row.target.system.name, left=True),
        Column("threads", lambda row: str(row.target.runtime.threads)),
        _of_result("instances", lambda of: str(of.serving.instances)),
        _of_result("batch", lambda of: str(of.serving.max_batch)),
        Column("hosts", lambda row: str(row.hosts or DASH)),
        _of_result(f"p{load.counted_percentile:g}", _percentile, otherwise="not kept"),
        _of_result(
            "host can", lambda of: rate_text(None if of.max_qps is None else of.max_qps.value)
        ),
        _of_result("busy", lambda of: percent(of.utilisation.value, 0)),
        part_column("measured", lambda row: row.provenance, provenance_text, otherwise=DASH),
    ]
    if any(row.cost_per_hour for row in rows):
        columns += [
            Column("cost/hour", lambda row: number(row.cost_per_hour, 3)),
            Column("cost/million", lambda row: number(row.cost_per_million, 3)),
        ]
    return [
        f"{load.qps:.4g} samples/s, {load.counted_percentile:g} % within {seconds(load.slo_s)}.",
        "",
        table_of(rows, columns),
        "",
        "Hosts are as many as keep the bound with all latencies at the high end of their intervals."
        " Processors are taken to be awake, and instances not to slow each other down.",
    ]


def _of_result(
    title: str, text: Callable[[ScenarioResult], str], otherwise: str = DASH
) -> Column[ServingAdvice]:
    """A column of texts of the simulated scenario, or ``otherwise`` for targets without one."""
    return part_column(title, lambda row: row.result, text, otherwise=otherwise)


def _percentile(result: ScenarioResult) -> str:
    counted_s = result.latencies.get("counted_s")
    return seconds(None if counted_s is None else counted_s.value)
