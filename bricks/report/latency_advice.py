"""Models on targets with an SLO, for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bricks.analysis.latency_advice import LatencyAdvice
from bricks.report.columns import DASH, Column, table_of
from bricks.report.figures import interval_text, provenance_text
from bricks.report.tables import percent, seconds

COLUMNS: Sequence[Column[LatencyAdvice]] = (
    Column("model", lambda row: row.model, left=True),
    Column("batch", lambda row: DASH if row.batch is None else str(row.batch)),
    Column("system", lambda row: row.target.system.name),
    Column("threads", lambda row: str(row.target.runtime.threads)),
    Column("estimate", lambda row: seconds(row.estimate.estimate_s)),
    Column("interval", lambda row: interval_text(row.estimate.latency_s)),
    Column("keeps it", lambda row: "yes" if row.keeps else "no"),
    Column("risk", lambda row: percent(row.risk)),
    Column("a million costs", lambda row: _cost(row.cost_per_million)),
    Column("measured", lambda row: provenance_text(row.estimate.provenance)),
)


def advice_table(rows: Sequence[LatencyAdvice]) -> Table:
    """Models on targets: whether each meets the SLO, with which risk, at which cost."""
    return table_of(rows, COLUMNS)


def _cost(cost: float | None) -> str:
    return DASH if cost is None else f"{cost:.3g}"
