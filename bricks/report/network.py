"""Tables of networks, from the same data that ``--json`` prints.

Must not know how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bricks.errors import printable
from bricks.report.tables import number, percent, seconds, size
from bricks.units.quantities import written_bits

Row = Mapping[str, Any]


def networks_table(rows: Sequence[Row]) -> Table:
    """The networks of a cache."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("network", "interface", "rate", "ranks", "backend", "series"):
        table.add_column(title, justify="right" if title in ("ranks", "series") else "left")
    for row in rows:
        table.add_row(
            Text(printable(row["name"])),
            _interface(row["identity"]),
            _rate(row["identity"]),
            ", ".join(map(str, row["ranks"])),
            f"{row['backend']} {row['version']}",
            str(row["series"]),
        )
    return table


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
        _fits_table(facts["fits"]),
    ]
    for each in facts["slowdowns"]:
        parts.append(
            Text(
                f"Beside a collective of {each['ranks']} ranks, computing takes"
                f" {number(each['ratio'])} times as long ({number(each['low'])} to"
                f" {number(each['high'])})."
            )
        )
    return [*parts, Text(""), _points_table(facts["fits"])]


def _fits_table(fits: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("collective", "ranks", "up to", "α", "bytes/β", "off by"):
        table.add_column(title, justify="left" if title == "collective" else "right")
    for fit in fits:
        for piece in fit["pieces"]:
            beta = piece["beta_bytes_per_s"]
            table.add_row(
                _title(fit),
                str(fit["ranks"]),
                size(piece["max_bytes"]),
                seconds(piece["alpha_s"]),
                "–" if beta is None else f"{size(beta)}/s",
                percent(fit["deviation"]),
            )
    return table


def _points_table(fits: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("collective", "ranks", "bytes", "measured", "from", "to", "fit", "on the bus")
    for title in titles:
        table.add_column(title, justify="left" if title == "collective" else "right")
    for fit in fits:
        for point in fit["points"]:
            table.add_row(
                _title(fit),
                str(fit["ranks"]),
                size(point["num_bytes"]),
                *(seconds(point[name]) for name in ("seconds", "low_s", "high_s")),
                f"{100 * point['residual']:+.1f} %",
                f"{size(point['bus_bytes_per_s'])}/s",
            )
    return table


def _title(fit: Row) -> str:
    name = str(fit["operation"]).replace("_", "-")
    return f"{name}, computing" if fit["computing"] else name


def _interface(identity: Row) -> str:
    where = "one host" if identity["same_host"] else f"{len(identity['systems'])} systems"
    return f"{identity['kind']} ({where})"


def _rate(identity: Row) -> str:
    rate = identity["rate_bps"]
    return "not shaped" if rate is None else written_bits(rate)
