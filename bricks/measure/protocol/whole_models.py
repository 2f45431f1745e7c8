"""Requests about a whole model: a profile by the runtime, peaks of memory, changes of size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bricks.measure.protocol.request import Request
from bricks.samples.memory_peaks import MemoryPeaks
from bricks.samples.profile import TypicalRun
from bricks.samples.size_changes import SizeChanges


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


@dataclass(frozen=True, slots=True)
class RunSizes(Request[SizeChanges]):
    """Run a model with open dimensions at several sizes in turn: shapes of its inputs by name."""

    key: str
    model: bytes
    sizes: tuple[Mapping[str, tuple[int, ...]], ...]
