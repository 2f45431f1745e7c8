"""Tables of many models: the zoo's, their decomposition, coverage and similarity.

Rows are the JSON objects that ``--json`` prints. Must not compute results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.report.columns import Column, table_of
from bricks.report.tables import billions, percent, seconds, size

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

# A decoder has an input for the keys and the values of each layer: only the first few are shown.
_MAX_INPUTS = 4


def _text(title: str, key: str, *, left: bool = False) -> Column[Row]:
    """A column of the values under ``key``, as they are."""
    return Column(title, lambda row: str(row[key]), left)


_ZOO: Sequence[Column[Row]] = (
    _text("model", "name", left=True),
    *(_text(name, name, left=True) for name in ("task", "family", "framework", "kind")),
    Column("input", lambda row: _inputs(row["inputs"]), left=True),
    Column("parameters", lambda row: f"{row['parameters'] / 1e6:.1f} M"),
    Column("GFLOP", lambda row: _billions(row["flops"])),
)
_DECOMPOSITIONS: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    *(_text(name, name) for name in ("nodes", "bricks", "occurrences")),
    Column("unique", lambda row: percent(row["unique_share"])),
    Column("GFLOP", lambda row: _billions(row["flops"])),
    Column("weights", lambda row: size(row["weight_bytes"])),
)
_COVERAGES: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    _text("bricks", "bricks"),
    _text("measured", "measured"),
    Column("places", lambda row: percent(row["coverage"])),
    Column("FLOPs", lambda row: percent(row["flops_share"])),
    Column("estimate", lambda row: _state(row)),
    Column("cost", lambda row: _cost(row["cost_s"])),
    Column("added", lambda row: _cost(row["marginal_s"])),
)
_NEAREST: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    _text("bricks", "bricks"),
    Column("shared", lambda row: percent(row["shared"] / row["bricks"], 0)),
    Column("most similar", lambda row: _most_similar(row), left=True),
)


def zoo_table(rows: Sequence[Row]) -> Table:
    """Models of the zoo, with their inputs and sizes."""
    return table_of(rows, _ZOO)


def _inputs(inputs: Mapping[str, tuple[str, Sequence[int | str]]]) -> str:
    shapes = ["×".join(map(str, shape)) for _, shape in inputs.values()]
    more = len(shapes) - _MAX_INPUTS
    return ", ".join(shapes[:_MAX_INPUTS] + [f"{more} more"] * (more > 0))


def _billions(value: float | None) -> str:
    return "unknown" if value is None else billions(value, ".2f")


def decomposition_table(rows: Sequence[Row], union: Row) -> Table:
    """The decomposition of each model that has one, and of all models together."""
    known = [row for row in rows if row["nodes"] is not None]
    return table_of([*known, {**union, "model": "all"}], _DECOMPOSITIONS)


def coverage_table(models: Sequence[Row], together: Row) -> Table:
    """The measured share of each model, and the cost of measuring the rest."""
    known = [row for row in models if row["error"] is None]
    whole = {**together, "model": "all", "marginal_s": together["cost_s"]}
    return table_of([*known, whole], _COVERAGES)


def _state(row: Row) -> str:
    return "possible" if row["complete"] else "fails" if row["failed"] else "incomplete"


def _cost(value: float | None) -> str:
    return "unknown" if value is None else seconds(value) if value else "none"


def similarity_table(models: Sequence[Row], grid: Sequence[Sequence[float]]) -> Table:
    """The similarity of every two of a few models; columns are numbered as rows are."""
    positions = range(len(models))
    columns: list[Column[int]] = [
        Column("model", lambda row: f"{row + 1} {models[row]['model']}", left=True),
        Column("bricks", lambda row: str(models[row]["bricks"])),
        *(_similarity_column(column, grid) for column in positions),
    ]
    return table_of(positions, columns)


def _similarity_column(column: int, grid: Sequence[Sequence[float]]) -> Column[int]:
    return Column(
        str(column + 1), lambda row: "·" if row == column else _similarity(grid[row][column])
    )


def nearest_table(models: Sequence[Row]) -> Table:
    """The most similar models to each, for more models than a grid has room for."""
    return table_of(models, _NEAREST)


def _most_similar(row: Row) -> str:
    nearest = (f"{n['model']} {_similarity(n['similarity'])}" for n in row["nearest"][:3])
    return ", ".join(nearest) or "none"


def _similarity(value: float) -> str:
    """A similarity with two digits; a nonzero one never looks like zero."""
    return "–" if value == 0 else "<0.01" if value < 0.005 else f"{value:.2f}"
