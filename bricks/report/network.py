"""Tables of networks, from the same data that ``--json`` prints.

Must not know how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from bricks.errors import printable
from bricks.report.columns import DASH, Column, table_of
from bricks.report.tables import number, percent, seconds, size
from bricks.units.quantities import written_bits

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = Mapping[str, Any]


_NETWORKS: Sequence[Column[Row]] = (
    Column("network", lambda row: row["name"], left=True),
    Column("interface", lambda row: _interface(row["identity"]), left=True),
    Column("rate", lambda row: _rate(row["identity"]), left=True),
    Column("ranks", lambda row: ", ".join(map(str, row["ranks"]))),
    Column("backend", lambda row: f"{row['backend']} {row['version']}", left=True),
    Column("series", lambda row: str(row["series"])),
)
# Rows of fits and of points have the fields of their collective too.
_FITS: Sequence[Column[Row]] = (
    Column("collective", lambda row: _title(row), left=True),
    Column("ranks", lambda row: str(row["ranks"])),
    Column("up to", lambda row: size(row["max_bytes"])),
    Column("α", lambda row: seconds(row["alpha_s"])),
    Column("bytes/β", lambda row: _rate_text(row["beta_bytes_per_s"])),
    Column("off by", lambda row: percent(row["deviation"])),
)
_POINTS: Sequence[Column[Row]] = (
    Column("collective", lambda row: _title(row), left=True),
    Column("ranks", lambda row: str(row["ranks"])),
    Column("bytes", lambda row: size(row["num_bytes"])),
    Column("measured", lambda row: seconds(row["seconds"])),
    Column("from", lambda row: seconds(row["low_s"])),
    Column("to", lambda row: seconds(row["high_s"])),
    Column("fit", lambda row: f"{100 * row['residual']:+.1f} %"),
    Column("on the bus", lambda row: _rate_text(row["bus_bytes_per_s"])),
)


def networks_table(rows: Sequence[Row]) -> Table:
    """The networks of a cache."""
    return table_of(rows, _NETWORKS)


def network_parts(facts: Row) -> list[RenderableType]:
    """A network: what it is, its fits, and what was measured."""
    identity = facts["identity"]
    cores = identity["cores_per_rank"]
    parts: list[RenderableType] = [
        Text(
            f"{printable(facts['name'])} ({facts['key']}): {_interface(identity)}, MTU"
            f" {identity['mtu']}, {_rate(identity)}, {number(cores, 1)} cores a rank,"
            f" {facts['backend']} {facts['version']}."
        ),
        Text(""),
        _table_of_each("pieces", facts["fits"], _FITS),
    ]
    for slowdown in facts["slowdowns"]:
        parts.append(
            Text(
                f"Beside a collective of {slowdown['ranks']} ranks, computing takes"
                f" {number(slowdown['ratio'])} times as long ({number(slowdown['low'])} to"
                f" {number(slowdown['high'])})."
            )
        )
    return [*parts, Text(""), _table_of_each("points", facts["fits"], _POINTS)]


def _table_of_each(part: str, fits: Sequence[Row], columns: Sequence[Column[Row]]) -> Table:
    return table_of([{**fit, **row} for fit in fits for row in fit[part]], columns)


def _title(fit: Row) -> str:
    name = str(fit["operation"]).replace("_", "-")
    return f"{name}, computing" if fit["computing"] else name


def _interface(identity: Row) -> str:
    where = "one host" if identity["same_host"] else f"{len(identity['systems'])} systems"
    return f"{identity['kind']} ({where})"


def _rate_text(bytes_per_s: float | None) -> str:
    return DASH if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def _rate(identity: Row) -> str:
    rate = identity["rate_bps"]
    return "not shaped" if rate is None else written_bits(rate)
