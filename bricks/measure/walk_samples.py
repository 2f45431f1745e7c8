"""The samples of one walk by key, and the conditions during the walk.

They must not know how the walk was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.measure.protocol.walking import UNKNOWN_CONDITIONS, WalkConditions
from bricks.samples.measurement import Round
from bricks.units.sample import Sample, weighted_mean

if TYPE_CHECKING:
    from bricks.measure.walk import WalkStep


@dataclass(frozen=True, slots=True)
class WalkSamples:
    """Samples of the timed steps of a walk by key, one for each pass, and their conditions."""

    samples: Mapping[str, tuple[Sample, ...]]
    conditions: WalkConditions = UNKNOWN_CONDITIONS

    def rounds(self) -> dict[str, Round]:
        """The samples as a round of each key."""
        of = self.conditions
        known = of.host, of.waited_share, of.device_state
        return {key: Round.of(samples, *known) for key, samples in self.samples.items()}


def by_key(
    steps: Sequence[WalkStep], columns: Sequence[Sequence[Sample]]
) -> dict[str, tuple[Sample, ...]]:
    """Samples by key: for each pass, the mean over the occurrences that the steps stand for.

    ``columns`` has the samples of each step, one for each pass.
    """
    weights: dict[str, list[float]] = {}
    timed: dict[str, list[Sequence[Sample]]] = {}
    for step, column in zip(steps, columns, strict=True):
        if step.timed:
            weights.setdefault(step.key, []).append(step.weight)
            timed.setdefault(step.key, []).append(column)
    return {
        key: tuple(weighted_mean(of_pass, weights[key]) for of_pass in zip(*of_key, strict=True))
        for key, of_key in timed.items()
    }
