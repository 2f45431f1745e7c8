"""Figures of docs/accuracy.md: a benchmark is one row of its table.

Must not know what was estimated.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.ratios import Ratios
from bricks.report.tables import number, percent

PAGE = "../docs/accuracy.md"  # from the folder of the benchmarks' own pages


def row(name: str, ratios: Ratios, inside: Iterable[bool] = ()) -> dict[str, str]:
    """The figures called ``name_…``; ``inside`` says of each estimate whether its interval held."""
    held = list(inside)
    return {
        f"{name}_cases": str(len(ratios.values)),
        f"{name}_median": percent(ratios.median_error),
        f"{name}_p95": percent(ratios.p95_error),
        f"{name}_geomean": number(ratios.geomean, 3),
        f"{name}_inside": percent(sum(held) / len(held), 0) if held else "–",
    }
