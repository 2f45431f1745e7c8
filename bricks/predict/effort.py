"""How much is measured, and how much left to be predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Measures until what is predicted leaves no model's estimate more open than ``deviation``.

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
