"""What is known of a network, as JSON: each fit with its points, and what computing costs.

Must not know how it is shown.
"""

from __future__ import annotations

import math
from typing import Any

from bricks.network.collective import OPERATIONS, Aspect
from bricks.network.formulas import volume
from bricks.network.times import MeasuredNetwork


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
            {
                "num_bytes": size,
                **_measured(network, operation, ranks, aspect, size),
                "residual": residual,
                "bus_bytes_per_s": _bus_bytes_per_s(network, operation, ranks, aspect, size),
            }
            for size, residual in zip(found.sizes, found.residuals, strict=True)
        ],
    }


def _measured(
    network: MeasuredNetwork, operation: str, ranks: int, aspect: Aspect, num_bytes: int
) -> dict[str, Any]:
    found_s = network.measured(operation, num_bytes, ranks, aspect)
    return {
        "seconds": found_s.value,
        "low_s": found_s.low,
        "high_s": found_s.high,
        "rounds": len(network.series(operation, aspect)[ranks][num_bytes]),
    }


def _bus_bytes_per_s(
    network: MeasuredNetwork, operation: str, ranks: int, aspect: Aspect, num_bytes: int
) -> float:
    """What goes over each link, as nccl-tests counts it."""
    found_s = network.measured(operation, num_bytes, ranks, aspect)
    return volume(operation, ranks) * num_bytes / found_s.value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def slowdowns(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """How much slower ranks compute beside a collective, by ranks; empty if not measured."""
    ranks = {
        count for operation in OPERATIONS for count in network.series(operation, Aspect.UNIT_DURING)
    }
    found = []
    for count in sorted(ranks):
        ratio = network.slowdown(count).interval
        found.append({"ranks": count, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return found
