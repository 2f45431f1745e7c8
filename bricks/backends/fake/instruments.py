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

# Latencies that ONNX models of the reference workload, the chain and a read would have in this
# runtime; caches hold those of the first one.
REFERENCE_S, CHAIN_S, READ_S = 0.009146882321251763, 0.011931925652763313, 2e-6


class FakeInstruments(Instruments):
    """Instruments with fixed latencies; ``bound`` makes a model of a latency in seconds."""

    def __init__(self, bound: Callable[[float], BoundModel]) -> None:
        self._bound = bound

    def reference(self) -> BoundModel:
        """A model whose latency follows the simulated machine state."""
        return self._bound(REFERENCE_S)

    def chain(self) -> BoundModel:
        """Another one."""
        return self._bound(CHAIN_S)

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """A model that reads nothing."""
        return self._bound(READ_S)
