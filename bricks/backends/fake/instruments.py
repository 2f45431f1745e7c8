"""Instruments of the fake runtime: they have latencies as the same nodes would, and do nothing.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bricks.backends.instruments import Instruments

if TYPE_CHECKING:
    import numpy as np

    from bricks.backends.base import BoundModel

# The latency of a read.
READ_S = 2e-6


class FakeInstruments(Instruments):
    """Instruments with fixed latencies; ``bound`` makes a model of a latency in seconds."""

    def __init__(self, bound: Callable[[float], BoundModel]) -> None:
        self._bound = bound

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """A model that reads nothing."""
        return self._bound(READ_S)
