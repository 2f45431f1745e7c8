"""Advice for servers, for terminals. Must not compute results."""

from __future__ import annotations

from rich.console import RenderableType

from bricks.report.columns import Column, table_of
from bricks.report.figures import provenance_text, rate_text
from bricks.report.tables import number, percent, seconds
from bricks.studies.serving.advise import ServingAdvice, ServingAnswer


def serving_advice_parts(answer: ServingAnswer) -> list[RenderableType]:
    """A table of targets that serve models at a rate, with their hosts and costs."""
    load = answer.load
    rows = [advice for advice in answer.answers if isinstance(advice, ServingAdvice)]
    columns: list[Column[ServingAdvice]] = [
        Column("model", lambda row: row.model, left=True),
        Column("system", lambda row: row.target.system.name, left=True),
        Column("threads", lambda row: str(row.target.runtime.threads)),
        Column("instances", _instances),
        Column("batch", _batch),
        Column("hosts", lambda row: str(row.hosts or "–")),
        Column(f"p{load.counted_percentile:g}", _counted),
        Column("host can", _host_can),
        Column("busy", _busy),
        Column("measured", _measured),
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


def _instances(row: ServingAdvice) -> str:
    return "–" if row.result is None else str(row.result.serving.instances)


def _batch(row: ServingAdvice) -> str:
    return "–" if row.result is None else str(row.result.serving.max_batch)


def _counted(row: ServingAdvice) -> str:
    if row.result is None:
        return "not kept"
    counted_s = row.result.latencies.get("counted_s")
    return seconds(None if counted_s is None else counted_s.value)


def _host_can(row: ServingAdvice) -> str:
    highest = None if row.result is None else row.result.max_qps
    return rate_text(None if highest is None else highest.value)


def _busy(row: ServingAdvice) -> str:
    return percent(None if row.result is None else row.result.utilisation.value, 0)


def _measured(row: ServingAdvice) -> str:
    return "–" if row.provenance is None else provenance_text(row.provenance)
