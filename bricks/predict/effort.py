"""Efforts: the uncertainty at which measuring ends, and other bricks are predicted.

Benches and campaigns share them, and the command line the limits of predictions: must not import
the predictors. Must not know how bricks are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """The relative standard deviation of models' estimates, ``deviation``, at which measuring ends.

    At zero, all bricks are measured and none is predicted.
    """

    name: str
    deviation: float

    @property
    def complete(self) -> bool:
        """Whether everything is measured."""
        return self.deviation == 0.0


EFFORTS = {
    effort.name: effort
    for effort in (Effort("full", 0.0), Effort("balanced", 0.028), Effort("quick", 0.08))
}


# The least number of measured bricks from which a predictor is learned.
MIN = 30
