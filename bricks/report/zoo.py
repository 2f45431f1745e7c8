"""Tables of the zoo's models, from the same data that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bricks.report.tables import Row, giga


def zoo_table(rows: Sequence[Row]) -> Table:
    """Models of the zoo, with their inputs and sizes."""
    table = Table(box=None, pad_edge=False)
    for title in ("model", "task", "family", "framework", "kind", "input"):
        table.add_column(title, no_wrap=True)
    for title in ("parameters", "GFLOP"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in ("name", "task", "family", "framework", "kind")),
            _inputs([shape for _, shape in row["inputs"].values()]),
            f"{row['parameters'] / 1e6:.1f} M",
            giga(row["flops"]),
        )
    return table


# Decoders have an input for the keys and the values of each layer.
_MOST_INPUTS = 4


def _inputs(shapes: Sequence[Sequence[int | str]]) -> str:
    told = ["×".join(map(str, shape)) for shape in shapes[:_MOST_INPUTS]]
    more = len(shapes) - _MOST_INPUTS
    return ", ".join([*told, f"{more} more"] if more > 0 else told)
