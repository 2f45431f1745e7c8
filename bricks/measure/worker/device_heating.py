"""Heats a device before the walks of a worker.

Must not know which bricks the walks run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

from bricks.backends.heating import Heating, StateReader


class DeviceHeating:
    """The heating of each walk."""

    def __init__(self) -> None:
        self._walks: defaultdict[Hashable, Heating] = defaultdict(Heating)

    def reset(self) -> None:
        """Forget all walks: other models are loaded."""
        self._walks.clear()

    def heat(self, walk: Hashable, one_pass: Callable[[], object], state: StateReader) -> None:
        """Repeat ``one_pass`` of ``walk`` until the clock is steady, unless it heats nothing."""
        self._walks[walk].heat(one_pass, state)
