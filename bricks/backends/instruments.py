"""Instruments: small fixed work that a worker runs on a device next to measured pieces.

The eviction read sets the state of the device's caches to that within a model, and preparations
write inputs. Must not know what is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bricks.backends.input_values import PERIOD, filled

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from bricks.backends.base import BoundModel

# Eviction reads have a multiple of so many bytes.
ROW_BYTES = 4096


class Preparation(Protocol):
    """Untimed work before a piece, which prepares its inputs."""

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """Bind the work to the inputs of a piece at ``offsets`` into ``region``.

        An input without an offset has memory of its own.
        """


class NoPreparation:
    """The preparation of pieces whose inputs stay as they are."""

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """Return no work."""
        return ()


class Instruments(ABC):
    """The instruments of a device; each method returns a new one, ready to run."""

    @abstractmethod
    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """Return a read of all of ``memory`` (whole rows of bytes) with all threads.

        A walk over a model's bricks runs few of its occurrences, and so reads few of its weights.
        In the model, the other weights evict these from the caches before they are read again. So
        as many bytes as the walk omits are read before each pass.
        """

    def preparation(self, proto: onnx.ModelProto) -> Preparation:
        """Return the work before a piece that was loaded from ``proto``; by default none."""
        return NoPreparation()

    def filling(self, seed: int, *, signed: bool) -> np.ndarray:
        """Return a pattern of bytes that all types read as ordinary numbers."""
        return filled(PERIOD, seed, signed=signed)

    def unload(self) -> None:
        """Unload all preparations; by default there are none."""
        return None


class Instrumented(ABC):
    """An optional interface of a backend: instruments of its own.

    Without it, they are ONNX models that it loads (:mod:`bricks.backends.onnx_instruments`).
    """

    @abstractmethod
    def instruments(self) -> Instruments:
        """Return the instruments of the backend's device."""
