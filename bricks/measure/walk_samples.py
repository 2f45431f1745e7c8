"""The samples of one walk by key, and the conditions under which they were taken.

They must not know how the walk was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bricks.measure.walk import Step
from bricks.samples.measurement import Round
from bricks.units.sample import Sample, weighted_mean


@dataclass(frozen=True, slots=True)
class WalkSamples:
    """Samples of the timed steps of a walk by key, one for each pass.

    The conditions are as in :class:`~bricks.samples.measurement.Round`.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    reference_s: float | None = None
    waited_share: float | None = None
    reference_end_s: float | None = None

    def rounds(self) -> dict[str, Round]:
        """The samples as a round of each key."""
        return {
            key: Round.of(samples, self.reference_s, self.waited_share, self.reference_end_s)
            for key, samples in self.samples.items()
        }


def by_key(
    steps: Sequence[Step], columns: Sequence[Sequence[Sample]]
) -> dict[str, tuple[Sample, ...]]:
    """Samples by key: for each pass, the mean over the occurrences that the steps stand for.

    ``columns`` holds the samples of each step, one for each pass.
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
