"""How long a step of a decoder takes at any length of its cache: estimates at some, between them.

Bricks that do not depend on the length are the same at all of them, so that further lengths cost
little. Must not know how estimates are made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bricks.compose.estimate import MEASURED, Provenance
from bricks.compose.figure import Figure

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

    batch: int
    tokens: int
    past: int
    seconds: Figure
    factors: np.ndarray = field(repr=False)
    provenance: Provenance = MEASURED


@dataclass(frozen=True)
class StepTimes:
    """Estimated steps: ``prompts`` by the batch, ``steps`` of one token by batch and length.

    ``steps`` have the same ascending lengths for each batch.
    """

    prompts: Mapping[int, Step]
    steps: Mapping[int, Sequence[Step]]

    def at(self, batch: int, past: float) -> Figure:
        """A step of one token of each of ``batch`` sequences, which is among those estimated.

        Linear in the length between two; beyond them, as between the last two. The interval is
        wider by the error that a length has which is interpolated from its neighbours.
        """
        found = interpolated(self.steps[batch], past)
        more = min(self.interpolation_error(batch), 1.0)
        if any(step.past == past for step in self.steps[batch]):
            return found
        return Figure(found.value, found.low * (1 - more), found.high * (1 + more))

    def interpolation_error(self, batch: int) -> float:
        """The worst error of a length that is interpolated from its neighbours, relative to it."""
        steps, worst = self.steps[batch], 0.0
        for number in range(1, len(steps) - 1):
            told = interpolated([steps[number - 1], steps[number + 1]], steps[number].past)
            worst = max(worst, abs(told.value / steps[number].seconds.value - 1))
        return worst


def interpolated(steps: Sequence[Step], past: float) -> Figure:
    """Between the two steps around a length, or along the last two beyond them."""
    if len(steps) == 1:
        return steps[0].seconds
    lengths = [step.past for step in steps]
    after = min(max(bisect_left(lengths, past), 1), len(steps) - 1)
    before = after - 1
    share = (past - lengths[before]) / (lengths[after] - lengths[before])

    def at(end: str) -> float:
        low, high = (float(getattr(steps[n].seconds, end)) for n in (before, after))
        return max(0.0, low + share * (high - low))

    return Figure(at("value"), at("low"), at("high"))
