"""Efforts: how much is measured, and how much is left to be predicted.

Here so that benches and campaigns share the efforts. Must not know how bricks are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Measures until the relative uncertainty of every model's estimate is at most ``deviation``.

    That is a relative standard deviation. Zero: nothing is predicted.
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
