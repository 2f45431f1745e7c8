"""The fits and slowdowns of a measured network, as JSON objects.

Must not know how it is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bricks.network.collective import OPERATIONS, Aspect, volume
from bricks.units.facts import json_of

if TYPE_CHECKING:
    from bricks.network.series import SizeSeries
    from bricks.network.times import MeasuredNetwork


def fits(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """The fits of all operations by ranks, isolated and while ranks compute."""
    return [
        _fit(series, operation, ranks, aspect)
        for operation in OPERATIONS
        for aspect in (Aspect.ALONE, Aspect.COMPUTING)
        for ranks, series in sorted(network.series(operation, aspect).items())
    ]


def _fit(series: SizeSeries, operation: str, ranks: int, aspect: Aspect) -> dict[str, Any]:
    fit = series.fit
    return {
        "operation": operation,
        "ranks": ranks,
        "computing": aspect is Aspect.COMPUTING,
        "deviation": fit.deviation,
        "pieces": json_of(fit.segments),
        "points": [
            _point(series, volume(operation, ranks), size, residual)
            for size, residual in zip(fit.sizes, fit.residuals, strict=True)
        ],
    }


def _point(series: SizeSeries, volume: float, num_bytes: int, residual: float) -> dict[str, Any]:
    """A measured size; ``bus_bytes_per_s`` is the bandwidth of a link as nccl-tests counts it."""
    time_s = series.measured(num_bytes)
    return {
        "num_bytes": num_bytes,
        "seconds": time_s.value,
        "low_s": time_s.low,
        "high_s": time_s.high,
        "rounds": len(series.rounds_s[num_bytes]),
        "residual": residual,
        "bus_bytes_per_s": volume * num_bytes / time_s.value,
    }


def slowdowns(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """By ranks, the slowdown of computing during a collective; empty if not measured."""
    ranks = {
        count for operation in OPERATIONS for count in network.series(operation, Aspect.UNIT_DURING)
    }
    rows = []
    for count in sorted(ranks):
        ratio = network.slowdown(count).interval
        rows.append({"ranks": count, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return rows
