"""Instruments of the fake runtime: they take as long as the same nodes would, and do nothing.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bricks.backends.base import BoundModel
from bricks.backends.instruments import Instruments

# What ONNX models of the reference workload, of the chain, and of a read take here; caches hold
# latencies of the first one.
REFERENCE_S, CHAIN_S, READ_S = 0.009146882321251763, 0.011931925652763313, 2e-6


class FakeInstruments(Instruments):
    """``made`` gives something that takes so many seconds."""

    def __init__(self, made: Callable[[float], BoundModel]) -> None:
        self._made = made

    def reference(self) -> BoundModel:
        """As slow or fast as the machine state that is simulated."""
        return self._made(REFERENCE_S)

    def chain(self) -> BoundModel:
        """Always as long, but for that."""
        return self._made(CHAIN_S)

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """Nothing is read."""
        return self._made(READ_S)
