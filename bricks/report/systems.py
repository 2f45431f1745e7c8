"""Systems, the networks between them, and the hosts of a fleet: tables for terminals.

From the data that ``--json`` prints. The answer says which system this host is, and how many are
known. Must not compute results, nor know how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from bricks.errors import printable
from bricks.report.tables import (
    DASH,
    NOTABLE_CORES,
    Column,
    facts_table,
    number,
    part_column,
    percent,
    seconds,
    size,
    table_of,
)
from bricks.report.words import verb
from bricks.units.quantities import written_bits

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = Mapping[str, Any]

_COLUMNS: Sequence[Column[Row]] = (
    Column(
        "system", lambda row: f"{row['name']}{' (here)' if row['this_host'] else ''}", left=True
    ),
    part_column("cores", lambda row: row["identity"].get("physical_cores"), str),
    Column("measured with", lambda row: _runtimes(row), left=True),
    Column("threads", lambda row: _threads(row)),
    Column("published", lambda row: "yes" if row["published"] else "no"),
    part_column("price/hour", lambda row: row.get("price_per_hour"), "{:g}".format),
)


def systems_parts(rows: Sequence[Row]) -> list[RenderableType]:
    """A table of the systems, the most known first."""
    return [table_of(rows, _COLUMNS)] if rows else []


def systems_details(
    identity: Mapping[str, Any], rows: Sequence[Row], published: Mapping[str, str]
) -> list[RenderableType]:
    """The facts of this host, and the targets of each system.

    ``published`` are the published names of systems by their keys.
    """
    parts: list[RenderableType] = [facts_table(identity)]
    for row in rows:
        other = published.get(row["key"], row["name"])
        called = "" if other == row["name"] else f", published as {other}"
        parts += ["", f"{row['name']} ({row['key']}){called}:"]
        parts += [f"  {_target(runtime)}" for runtime in row["runtimes"]]
    return parts


def _runtimes(row: Row) -> str:
    return ", ".join(sorted({runtime["backend"] for runtime in row["runtimes"]}))


def _threads(row: Row) -> str:
    return ", ".join(map(str, sorted({runtime["threads"] for runtime in row["runtimes"]})))


def _target(runtime: Row) -> str:
    level = runtime.get("optimization")
    return (
        f"{runtime['name']}: brick optimisation {runtime['brick_optimization']}"
        f"{f', optimisation {level}' if level else ''}"
    )


def systems_text(here: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: ``This host is lab, which is known; 3 systems are known, 2 of them published``.

    ``here`` is the name of this host, ``rows`` are the facts of the known systems.
    """
    this_host = f"This host is {printable(here)}"
    if not rows:
        return f"{this_host}; no system is known yet: 'bricks measure MODEL' makes it known."
    known = any(row["this_host"] for row in rows)
    measured = "which is known" if known else "which is not measured yet"
    count, published = len(rows), sum(row["published"] for row in rows)
    systems = f"{count} {verb(count, 'system is', 'systems are')} known"
    return f"{this_host}, {measured}; {systems}, {_published(count, published)}."


def _published(count: int, published: int) -> str:
    if published == count:
        return "published" if count == 1 else "all of them published"
    return f"{published or 'none'} of them published" if count > 1 else "not published"


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
