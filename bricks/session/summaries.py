"""Summaries of measuring and probing many models.

Plain data, here so that reports need not import a bench. Must not know how they are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.samples.sampling import Sampling

if TYPE_CHECKING:
    from bricks.samples.measurement import Failure
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Measured(Sampling):
    """The result of measuring models: their ``bricks``, of which ``new_bricks`` were missing.

    ``predicted_bricks`` are not measured, because the effort does not need them.
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
    """The result of probing a target: ``probes`` of the models' ``bricks`` were measured.

    The others are predicted from these probes, and from the measurements of ``source_targets``.
    ``deviation`` is the uncertainty afterwards: the median over models of the relative standard
    deviation of their estimates. ``measured`` counts all bricks that are measured by now.
    """

    models: int
    bricks: int
    probes: int
    measured: int
    source_targets: tuple[Target, ...]
    deviation: float | None
    failures: tuple[Failure, ...]
    wall_s: float
