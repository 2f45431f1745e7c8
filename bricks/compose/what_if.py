"""The result of comparing an edited model with its original: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The latencies of a model and of its ``edited`` form; ``gain`` is the difference in seconds.

    The gain is negative if the edited model takes longer.
    """

    FACTS: ClassVar = (
        ("original.latency_s", "estimate_s", "low_s", "high_s"),
        ("edited.latency_s", "edited_s", "edited_low_s", "edited_high_s"),
        ("gain", "gain_s", "gain_low_s", "gain_high_s"),
    )  # fmt: skip

    original: Estimate
    edited: Estimate
    gain: Interval
