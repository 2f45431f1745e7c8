"""The latency of single runs of a model: estimate, and how runs differ from their median.

Must not know what a run is part of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bricks.compose.basis import Basis
from bricks.compose.estimate import IncompleteEstimate, Provenance
from bricks.compose.queueing.spread import run_factors
from bricks.compose.recompose import recompose
from bricks.errors import ModelError
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class RunLatency:
    """The median latency of a run, and single runs relative to it: shape ``(draws,)``."""

    latency_s: Interval
    factors: np.ndarray = field(repr=False)
    provenance: Provenance


def run_latency(basis: Basis, which: str, *, seed: int) -> RunLatency:
    """The latency that ``basis`` gives; ``seed`` draws single runs.

    Raises :class:`ModelError` where there is no estimate for ``which`` run.
    """
    estimate = recompose(basis)
    if isinstance(estimate, IncompleteEstimate):
        gap = estimate.gaps[0]
        more = f" (and {len(estimate.gaps) - 1} more)" if len(estimate.gaps) > 1 else ""
        raise ModelError(f"{which}: no estimate without {gap.brick}: {gap.reason}{more}")
    return RunLatency(
        estimate.latency_s,
        run_factors(basis, estimate, seed=seed),
        estimate.provenance,
    )
