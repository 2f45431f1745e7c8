"""What measuring and comparing many models comes to."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.estimate.comparison import ComparisonFailure, ModelComparison, Summary
from bricks.samples.measurement import Failure
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Measured:
    """What measuring did. ``bricks`` are all that the models need; ``new_bricks`` were lacking.

    ``foreign_cores`` is how many cores other processes kept busy meanwhile, which makes latencies
    too high; None if nothing had to be measured. ``disturbed_rounds`` of the ``rounds`` taken are
    those in which the worker itself was kept from running, or the machine changed.
    ``remeasured_bricks`` had been measured, but in another state of the machine.
    ``predicted_bricks`` are left to be predicted: measuring them is not worth the effort asked for.
    ``eviction_short``: there was not memory enough to make weights as cold as in their models.
    """

    models: int
    occurrences: int
    bricks: int
    new_bricks: int
    predicted_bricks: int
    failures: tuple[Failure, ...]
    unfinished: int
    wall_s: float
    foreign_cores: float | None
    rounds: int
    disturbed_rounds: int
    remeasured_bricks: int
    eviction_short: bool = False


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Estimates beside whole-model runs on one target; ``new_models`` were run for it.

    ``foreign_cores``, ``rounds``, ``disturbed_rounds``, ``remeasured_bricks`` and
    ``eviction_short`` are as in :class:`Measured`.
    """

    target: Target
    granularity: str
    rows: tuple[ModelComparison | ComparisonFailure, ...]
    summary: Summary
    new_models: int
    foreign_cores: float | None
    rounds: int
    disturbed_rounds: int
    remeasured_bricks: int
    eviction_short: bool = False
