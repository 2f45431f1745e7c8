"""Tables of a fleet's work, by target and by host. Must not compute results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.report.columns import DASH, Column, table_of
from bricks.report.tables import NOTABLE_CORES, number

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

_TARGETS: Sequence[Column[Row]] = (
    Column("system", lambda row: row["system"]["name"], left=True),
    Column("threads", lambda row: str(row["runtime"]["threads"])),
    Column("bricks", lambda row: str(row["bricks"])),
    Column("new", lambda row: str(row["new_bricks"])),
    Column("predicted", lambda row: str(row["predicted_bricks"])),
    Column("failed", lambda row: str(len(row["failures"]))),
    Column("unfinished", lambda row: str(row["unfinished"])),
)


def fleet_tables(targets: Sequence[Row], hosts: Sequence[Row]) -> list[Table]:
    """The measurements of each target, and the contribution of each host."""
    names = {target["system"]["key"]: target["system"]["name"] for target in targets}
    columns: list[Column[Row]] = [
        Column("host", lambda row: row["name"], left=True),
        Column("system", lambda row: names.get(row["system"], DASH), left=True),
        Column("new", lambda row: str(row["new_bricks"])),
        Column("rounds", lambda row: str(row["rounds"])),
        Column("disturbed", lambda row: str(row["disturbed_rounds"])),
        Column("others' cores", lambda row: number(row["foreign_cores"], 1)),
        Column("", _notes, left=True),
    ]
    return [table_of(targets, _TARGETS), table_of(hosts, columns)]


def _notes(host: Row) -> str:
    notes = [*host["changed"], *([host["left"]] if host["left"] else [])]
    if host["foreign_cores"] is not None and host["foreign_cores"] >= NOTABLE_CORES:
        notes.append("others worked there: latencies are too high, and uneven")
    return "; ".join(notes)
