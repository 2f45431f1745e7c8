"""What measuring and comparing many models comes to."""

from __future__ import annotations

from dataclasses import dataclass

from bricks._version import renamed_fields
from bricks.estimate.comparison import ComparisonFailure, ModelComparison, Summary
from bricks.samples.measurement import Failure
from bricks.samples.sampling import Sampling
from bricks.system import Target


@renamed_fields(ballast_short="eviction_short")
@dataclass(frozen=True, slots=True)
class Measured(Sampling):
    """What measuring did. ``bricks`` are all that the models need; ``new_bricks`` were lacking.

    ``predicted_bricks`` are left to be predicted: measuring them is not worth the effort asked for.
    """

    models: int
    occurrences: int
    bricks: int
    new_bricks: int
    predicted_bricks: int
    failures: tuple[Failure, ...]
    unfinished: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Probed:
    """What probing a target came to: ``probes`` were measured, of ``bricks`` that the models need.

    The others are predicted from them, and from what was measured on ``teachers``, other targets.
    ``deviation`` is how well models are known then: the median of the standard deviations of their
    estimates, relative to them. ``measured`` counts all bricks that are measured by now.
    """

    models: int
    bricks: int
    probes: int
    measured: int
    teachers: tuple[Target, ...]
    deviation: float | None
    failures: tuple[Failure, ...]
    wall_s: float


@renamed_fields(ballast_short="eviction_short")
@dataclass(frozen=True, slots=True)
class Comparison(Sampling):
    """Estimates beside whole-model runs on one target; ``new_models`` were run for it."""

    target: Target
    granularity: str
    rows: tuple[ModelComparison | ComparisonFailure, ...]
    summary: Summary
    new_models: int
