"""How long a step of a decoder takes at any length of its cache: estimates at some, between them.

Bricks that do not depend on the length are the same at all of them, so that further lengths cost
little. Must not know how estimates are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from bricks.compose.estimate import MEASURED, Provenance
from bricks.units.curve import Curve
from bricks.units.interval import Interval

# Lengths at which steps are estimated, when there are as many.
_LENGTHS = 4


def lengths_between(first: int, last: int) -> list[int]:
    """The lengths at which steps are estimated: the ends, and some that are as far apart."""
    return sorted({round(length) for length in np.linspace(first, last, _LENGTHS)})


@dataclass(frozen=True, slots=True)
class Step:
    """A step of ``batch`` sequences, each of ``tokens`` new tokens after ``past`` others.

    ``factors`` are single runs relative to their median, of the shape ``(draws,)``.
    """

    FACTS: ClassVar = (
        "batch", "tokens", ("past", "past_tokens"), "latency_s",
        ("provenance.measured_share", "measured_share"),
        ("provenance.published_share", "published_share"),
        ("provenance.predicted_share", "predicted_share"),
    )  # fmt: skip

    batch: int
    tokens: int
    past: int
    latency_s: Interval
    factors: np.ndarray = field(repr=False)
    provenance: Provenance = MEASURED


@dataclass(frozen=True)  # without slots: the curves are kept
class StepTimes:
    """Estimated steps: ``prompts`` by the batch, ``steps`` of one token by batch and length.

    ``steps`` have the same ascending lengths for each batch.
    """

    prompts: Mapping[int, Step]
    steps: Mapping[int, Sequence[Step]]

    def at(self, batch: int, past: float) -> Interval:
        """A step of one token of each of ``batch`` sequences, which is among those estimated.

        Linear in the length between two.
        """
        return self._curves[batch].at(past)

    def interpolation_error(self, batch: int) -> float:
        """The worst error of a length that is interpolated from its neighbours, relative to it."""
        return self._curves[batch].error if batch in self._curves else 0.0

    def by_batch(self, past: float) -> Curve:
        """Steps of one token after ``past`` others, by the number of sequences."""
        known = ((batch, curve.at(past)) for batch, curve in self._curves.items())
        return Curve.through(known, widens=False)

    @cached_property
    def _curves(self) -> Mapping[int, Curve]:
        """By the batch, seconds by the length of the cache."""
        return {
            batch: Curve.through((step.past, step.latency_s) for step in steps)
            for batch, steps in self.steps.items()
            if steps
        }
