"""Requests about a whole model: a profile by the runtime, peaks of memory."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.measure.protocol.request import Request
from bricks.samples.memory_peaks import MemoryPeaks
from bricks.samples.profile import TypicalRun


@dataclass(frozen=True, slots=True)
class ProfileModel(Request[TypicalRun]):
    """Run a model several times under the runtime's own profiler."""

    key: str
    model: bytes
    streams: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureMemory(Request[MemoryPeaks]):
    """Load a model as its users do, and run it, in this process, which must be fresh.

    With ``inline``, weights are in the model's own file.
    """

    key: str
    model: bytes
    inline: bool = False
