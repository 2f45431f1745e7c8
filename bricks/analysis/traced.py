"""A model's recomposed timeline beside its runtime's profile: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.timeline import ModelTimeline
from bricks.decompose.plan import Brick, Plan
from bricks.samples.profile import NoProfile, Profile
from bricks.system import Target
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class Traced:
    """Both timelines of ``plan`` on ``target``; ``bricks`` are the plan's, by key.

    ``whole`` is the measured latency of the whole model, without a profiler; None if it was not
    measured.
    """

    plan: Plan
    bricks: Mapping[str, Brick]
    target: Target
    estimate: Estimate | IncompleteEstimate
    recomposed: ModelTimeline
    profile: Profile | NoProfile
    whole_s: Interval | None = None
