"""The uncertainty of a recomposed latency by source, in seconds.

A brick's latency is as uncertain as its samples or its prediction. Must not know how samples are
taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ErrorSource(StrEnum):
    """A source of an estimate's uncertainty.

    ``PREDICTED``: bricks that were not measured. ``CONDITIONS``: how the host's conditions differ
    at another time, and corrections to them. ``OTHER_HOST``: bricks that another host of the same
    kind measured. ``SAMPLES``: the spread of all other measurements. ``CALLS``: the cost of a call,
    which is subtracted from each brick. ``LAUNCHING``: the cost of launching kernels on a device.
    ``RECOMPOSITION``: the state of the caches. ``WORKERS``: interference between bricks that run in
    parallel.
    """

    PREDICTED = "predicted"
    CONDITIONS = "conditions"
    OTHER_HOST = "other_host"
    SAMPLES = "samples"
    CALLS = "calls"
    LAUNCHING = "launching"
    RECOMPOSITION = "recomposition"
    WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Half the width of an estimate's interval in seconds, by :class:`ErrorSource`.

    The parts add up to half the width. Independent errors add as squares in the interval; each
    has here the part of their sum that is in proportion to its square.
    """

    predicted_s: float = 0.0
    conditions_s: float = 0.0
    other_host_s: float = 0.0
    samples_s: float = 0.0
    calls_s: float = 0.0
    launching_s: float = 0.0
    recomposition_s: float = 0.0
    workers_s: float = 0.0

    @classmethod
    def of(cls, parts_s: Mapping[ErrorSource, float]) -> Uncertainty:
        """The uncertainty with these seconds by source; a source without any has 0."""
        return cls(**{f"{source}_s": part_s for source, part_s in parts_s.items()})

    @property
    def by_source(self) -> dict[ErrorSource, float]:
        """The parts in seconds, by source."""
        return {source: getattr(self, f"{source}_s") for source in ErrorSource}

    @property
    def half_width_s(self) -> float:
        """Half the width of the interval."""
        return sum(self.by_source.values())

    def scaled_to(self, half_width_s: float) -> Uncertainty:
        """These parts, scaled to an interval of half the width ``half_width_s``."""
        total_s = self.half_width_s
        factor = half_width_s / total_s if total_s else 0.0
        return Uncertainty.of({source: factor * s for source, s in self.by_source.items()})


class HalfWidth:
    """The distance from an estimate to one end of its interval, from the errors of single bricks.

    The errors are independent: their squares add up.
    """

    def __init__(self) -> None:
        self._squares = dict.fromkeys(ErrorSource, 0.0)

    def add(self, source: ErrorSource, part_s: float) -> None:
        """Add the uncertainty of one brick, in seconds."""
        self._squares[source] += part_s**2

    @property
    def total_s(self) -> float:
        """The distance in seconds."""
        return math.sqrt(sum(self._squares.values()))

    @property
    def by_source(self) -> dict[ErrorSource, float]:
        """The part of each source in seconds; they add up to the distance."""
        total_s = self.total_s
        return {s: square / total_s if total_s else 0.0 for s, square in self._squares.items()}
