"""The state of an accelerator at one time: its clock, its power, and why its clock is lowered.

Must not know any driver, nor what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Why a driver lowers clocks: work draws more than the limit of power, or the card protects itself.
POWER, TEMPERATURE, HARDWARE = THROTTLES = "power", "temperature", "hardware"


@dataclass(frozen=True, slots=True)
class AcceleratorState:
    """The ``clock_hz`` of multiprocessors now, the power drawn, and what lowers the clock.

    ``throttled_by`` are among ``THROTTLES``, in their order. Facts that are not known are None.
    """

    clock_hz: float | None = None
    power_w: float | None = None
    throttled_by: tuple[str, ...] = ()

    @property
    def at_power_limit(self) -> bool:
        """Whether the limit of power lowers the clock, as in any run of the same work."""
        return POWER in self.throttled_by

    @property
    def unsteady(self) -> bool:
        """Whether the card protects itself: other runs of the same work need not be so slow."""
        return any(reason != POWER for reason in self.throttled_by)

    def to_json(self) -> list[Any]:
        """``[clock_hz, power_w, [reason, …]]``."""
        return [self.clock_hz, self.power_w, [*self.throttled_by]]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> AcceleratorState:
        """The inverse of :meth:`to_json`; not checked."""
        clock_hz, power_w, reasons = data
        return cls(clock_hz, power_w, tuple(reasons))


def joined(states: Iterable[AcceleratorState | None]) -> AcceleratorState | None:
    """The state over all ``states``: least clock, most power, all reasons; None if none is known.

    States that are None are unknown, and left out.
    """
    known = [state for state in states if state is not None]
    if not known:
        return None
    reasons = {reason for state in known for reason in state.throttled_by}
    return AcceleratorState(
        min((s.clock_hz for s in known if s.clock_hz is not None), default=None),
        max((s.power_w for s in known if s.power_w is not None), default=None),
        tuple(reason for reason in THROTTLES if reason in reasons),
    )
