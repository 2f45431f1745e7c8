"""The deadline of measuring. Must not know what is measured."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time of the monotonic clock in seconds; None: there is none."""

    at_s: float | None = None

    @classmethod
    def after(cls, budget_s: float | None) -> Deadline:
        """The end of a budget that begins now; None: no limit."""
        return cls(None if budget_s is None else time.monotonic() + budget_s)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return math.inf if self.at_s is None else self.at_s - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0


NEVER = Deadline()
