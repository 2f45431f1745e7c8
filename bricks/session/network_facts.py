"""What is known of a network, as JSON: each fit with its points, and what computing costs.

Must not know how it is shown.
"""

from __future__ import annotations

import math
from typing import Any

from bricks.network.collective import OPERATIONS, Aspect
from bricks.network.formulas import volume
from bricks.network.times import MeasuredNetwork
from bricks.samples.statistics import Spread


def fits(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """The fits of all operations, alone and beside computing, by ranks."""
    return [
        _fit(network, operation, ranks, aspect)
        for operation in OPERATIONS
        for aspect in (Aspect.ALONE, Aspect.COMPUTING)
        for ranks in sorted(network.series(operation, aspect))
    ]


def _fit(network: MeasuredNetwork, operation: str, ranks: int, aspect: Aspect) -> dict[str, Any]:
    found = network.fit(operation, ranks, aspect)
    return {
        "operation": operation,
        "ranks": ranks,
        "computing": aspect is Aspect.COMPUTING,
        "deviation": found.deviation,
        "pieces": [
            {
                "max_bytes": piece.max_bytes,
                "alpha_s": piece.alpha_s,
                "beta_bytes_per_s": _finite(piece.beta_bytes_per_s),
            }
            for piece in found.pieces
        ],
        "points": [
            _point(
                network.measured(operation, size, ranks, aspect), operation, ranks, size, residual
            )
            for size, residual in zip(found.sizes, found.residuals, strict=True)
        ],
    }


def _point(
    known: Spread, operation: str, ranks: int, num_bytes: int, residual: float
) -> dict[str, Any]:
    return {
        "num_bytes": num_bytes,
        "seconds": known.median_s,
        "low_s": known.low_s,
        "high_s": known.high_s,
        "rounds": known.count,
        "residual": residual,
        # What goes over each link, as nccl-tests counts it.
        "bus_bytes_per_s": volume(operation, ranks) * num_bytes / known.median_s,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def slowdowns(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """How much slower ranks compute beside a collective, by ranks; empty if not measured."""
    ranks = {
        count for operation in OPERATIONS for count in network.series(operation, Aspect.UNIT_DURING)
    }
    found = []
    for count in sorted(ranks):
        known = network.slowdown(count)
        found.append({"ranks": count, "ratio": known.ratio, "low": known.low, "high": known.high})
    return found
