"""Brings a device to the clock that it keeps under a load, before the load is timed.

A card whose work draws more than its limit of power lowers its clock within some tenths of a
second. A walk is shorter, and would be timed at a clock that no long run has. Imported where
nothing of this package is, in Python 3.9 or later. Must not know any runtime.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.system.accelerator import AcceleratorState

# Seconds of work between two readings of the clock, and in all.
HEATED_S, _MOST_S = 0.2, 3.0

# A clock that falls by a smaller share between two readings is steady.
_STEADY_SHARE = 0.01

StateReader = Callable[[], "AcceleratorState | None"]


class Heating:
    """Heats a device before the rounds of one walk, until a round shows that it stays cool."""

    def __init__(self) -> None:
        self._cool = False

    def heat(self, run: Callable[[], object], state: StateReader) -> None:
        """Repeat ``run`` until the clock is steady, if it holds the device at its limit of power.

        ``run`` ends when the device has no work. A device that tells no ``state`` is not heated.
        """
        now = None if self._cool else state()
        end_s = time.monotonic() + _MOST_S
        while now is not None and time.monotonic() < end_s:
            before = now
            repeated_s = time.monotonic() + HEATED_S
            run()
            while time.monotonic() < repeated_s:
                run()
            now = state() or before
            self._cool = not now.at_power_limit
            if self._cool or _steady(before, now):
                break


def _steady(before: AcceleratorState, now: AcceleratorState) -> bool:
    if before.clock_hz is None or now.clock_hz is None:
        return True
    return now.clock_hz >= (1 - _STEADY_SHARE) * before.clock_hz
