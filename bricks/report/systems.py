"""Known systems for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.report.columns import Column, table_of
from bricks.report.tables import facts_table

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = Mapping[str, Any]

_COLUMNS: Sequence[Column[Row]] = (
    Column(
        "system", lambda row: f"{row['name']}{' (here)' if row['this_host'] else ''}", left=True
    ),
    Column("cores", lambda row: _cores(row)),
    Column("measured with", lambda row: _runtimes(row), left=True),
    Column("threads", lambda row: _threads(row)),
    Column("published", lambda row: "yes" if row["published"] else "no"),
    Column("price/hour", lambda row: _price(row)),
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


def _cores(row: Row) -> str | None:
    cores = row["identity"].get("physical_cores")
    return None if cores is None else str(cores)


def _runtimes(row: Row) -> str:
    return ", ".join(sorted({runtime["backend"] for runtime in row["runtimes"]}))


def _threads(row: Row) -> str:
    return ", ".join(map(str, sorted({runtime["threads"] for runtime in row["runtimes"]})))


def _price(row: Row) -> str | None:
    price = row.get("price_per_hour")
    return None if price is None else f"{price:g}"


def _target(runtime: Row) -> str:
    level = runtime.get("optimization")
    return (
        f"{runtime['name']}: brick optimisation {runtime['brick_optimization']}"
        f"{f', optimisation {level}' if level else ''}"
    )
