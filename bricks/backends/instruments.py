"""Small fixed work that a worker runs on a device along with pieces, and that is no piece itself.

It observes the device (the reference workload, the chain), puts its caches into the state that a
model leaves them in (the eviction read), and prepares what pieces read. Must not know what is
measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx

from bricks.backends.base import BoundModel
from bricks.backends.filling import PERIOD, filled

# Eviction reads are of so many bytes, or of a multiple.
ROW_BYTES = 4096


class Preparation(Protocol):
    """What runs untimed before a piece, for the sake of what it reads."""

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """What to run before the piece whose inputs lie at ``offsets`` into ``region``.

        An input without an offset has memory of its own.
        """
        ...


class Unprepared:
    """The preparation of pieces that read what they find."""

    def bound(self, offsets: Sequence[int | None], region: np.ndarray) -> Sequence[BoundModel]:
        """Nothing."""
        return ()


class Instruments(ABC):
    """The instruments of a device. Each call of a method gives one of its own, ready to run."""

    @abstractmethod
    def reference(self) -> BoundModel:
        """The reference workload, which is the same work in every release.

        Its latency tracks the state of the machine independently of what is measured: the speed of
        the cores and, with several threads, the cost of communication between them. (A hypervisor
        moves virtual processors between cores that share a cache and cores that don't; a whole
        model may then take twice as long.) So it is a chain of small layers, each of which reads
        data that all threads have just written.
        """

    @abstractmethod
    def chain(self) -> BoundModel:
        """A chain of trivial calls of the runtime, which take some ten microseconds in all."""

    @abstractmethod
    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """A read of all of ``memory`` (whole rows of bytes) with all threads.

        A walk over a model's bricks runs few of its occurrences, and so reads few of its weights.
        In the model, the other weights evict these from the caches before they are read again. So
        as many bytes as the walk omits are read before each pass.
        """

    def preparation(self, proto: onnx.ModelProto) -> Preparation:
        """What runs before a piece that was loaded from ``proto``; nothing, by default."""
        return Unprepared()

    def filling(self, seed: int, *, signed: bool) -> np.ndarray:
        """Bytes to fill memory with, again and again, that all types read as ordinary numbers."""
        return filled(PERIOD, seed, signed=signed)

    def unload(self) -> None:
        """Unload what was prepared; by default, nothing was."""
        return None


class Instrumented(ABC):
    """An optional interface of a backend: instruments of its own.

    Without it, they are ONNX models that it loads (:mod:`bricks.backends.onnx_instruments`).
    """

    @abstractmethod
    def instruments(self) -> Instruments:
        """The instruments of the device that it uses."""
