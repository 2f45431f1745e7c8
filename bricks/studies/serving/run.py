"""The latency of single runs of a model: estimate, and how runs differ from their median.

Must not know what a run is part of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bricks.api.bench import Bench
from bricks.compose.estimate import IncompleteEstimate, Provenance
from bricks.compose.figure import Figure
from bricks.compose.recompose import recompose
from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.studies.serving.spread import run_factors
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class RunLatency:
    """The median latency of a run, and single runs relative to it: shape ``(draws,)``."""

    seconds: Figure
    factors: np.ndarray = field(repr=False)
    provenance: Provenance


def run_latency(
    bench: Bench, model: Model, which: str, target: Target, *, measure: bool
) -> RunLatency:
    """The latency of ``model`` on ``target``; with ``measure``, missing bricks are measured first.

    Raises :class:`ModelError` where there is no estimate, for ``which`` of the model's runs.
    """
    basis = bench.basis(model, measure=measure, target=target)
    estimate = recompose(basis)
    if isinstance(estimate, IncompleteEstimate):
        gap = estimate.gaps[0]
        more = f" (and {len(estimate.gaps) - 1} more)" if len(estimate.gaps) > 1 else ""
        raise ModelError(
            f"{model.name} {which} on {target.system.name}: no estimate without {gap.brick}:"
            f" {gap.reason}{more}"
        )
    return RunLatency(
        Figure(estimate.estimate_s, estimate.low_s, estimate.high_s),
        run_factors(basis, estimate, seed=bench.options.seed),
        estimate.provenance,
    )
