"""An accelerator of a host: the facts of a GPU that determine how fast it is, and its state.

A system with an accelerator has these facts in its identity; the state at one time, such as a
lowered clock, belongs to a measurement. Must not know any runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The name of the fact in a system's identity.
ACCELERATOR = "accelerator"

# The devices that may run a model: the processor, or the accelerator.
CPU, CUDA = DEVICES = "cpu", "cuda"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU called ``name``, as its driver calls it.

    ``capability`` is its compute capability (``9.0``), ``l2_bytes`` the size of its last cache,
    ``clock_hz`` the highest clock of its multiprocessors. Facts that are not known are None.
    """

    name: str
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    capability: str
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_limit_w: float | None = None

    @property
    def slug(self) -> str:
        """Its name as one word: ``nvidia-h100-80gb-hbm3``."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def to_json(self) -> dict[str, Any]:
        """All facts."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Accelerator:
        """The inverse of :meth:`to_json`; TypeError for other facts."""
        return cls(**facts)


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
