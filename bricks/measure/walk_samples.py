"""The samples of one walk: seconds by key, and the conditions under which they were taken.

They must not know how the walk was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bricks.measure.walk import Step
from bricks.samples.measurement import Round


@dataclass(frozen=True, slots=True)
class WalkSamples:
    """Samples of the timed steps of a walk: seconds by key, one for each pass.

    The conditions are as in :class:`~bricks.samples.measurement.Round`.
    """

    samples: Mapping[str, tuple[float, ...]]
    reference_s: float | None = None
    waited_share: float | None = None
    reference_end_s: float | None = None

    def rounds(self) -> dict[str, Round]:
        """The samples as a round of each key."""
        return {
            key: Round(samples, self.reference_s, self.waited_share, self.reference_end_s)
            for key, samples in self.samples.items()
        }


def by_key(
    steps: Sequence[Step], columns: Sequence[Sequence[float]]
) -> dict[str, tuple[float, ...]]:
    """Samples by key: for each pass, the mean over the occurrences that the steps stand for.

    ``columns`` holds the seconds of each step, one for each pass.
    """
    weights: dict[str, float] = {}
    timed: dict[str, list[list[float]]] = {}
    for step, column in zip(steps, columns, strict=True):
        if step.timed:
            weights[step.key] = weights.get(step.key, 0.0) + step.weight
            timed.setdefault(step.key, []).append([step.weight * s for s in column])
    return {
        key: tuple(sum(samples) / weights[key] for samples in zip(*of_key, strict=True))
        for key, of_key in timed.items()
    }
