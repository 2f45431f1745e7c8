"""The uncertainty of a recomposed latency, and how much of it each source contributes.

A brick's latency is as uncertain as its samples, its prediction, or its correction from another
machine state. Besides, a brick's cost in its model differs from its cost when measured, which
samples of bricks cannot show; the errors of comparisons over many models bound this difference.
Must not know how samples came about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

# Round numbers that held at least 95 % of half of the zoo's families, and of the others too, on two
# Xeon cores (1 % and 0.3 calls held them on two EPYC cores: the wider of the two counts).
# benchmarks/accuracy.py reports the share that they hold, and the scale that they would need for
# families that are left out. The first is a share of the latency of all bricks, because of their
# cache state. The second is in calls for each occurrence: the subtracted overhead may be too large
# or too small, since a call costs more when its code and data have left the caches.
STATE_SHARE = 0.035
CALL_SHARE = 1.0
# The third is a share of the latency of bricks that mostly read their weights: where these lie in
# memory is another in each process, and decides how much of them a shared cache keeps. Chosen on
# chains of products of one size (18 of 20 are inside), and holds for all 16 of two sizes:
# benchmarks/large_weights.py.
WEIGHTS_SHARE = 0.06

# Twice as much of stretches of tiny nodes (see decompose.stretches) so long that what the runtime
# keeps of them may fit into a core's cache or not: from process to process, a model of 6,000 nodes
# took 2.5 to 6.7 ms. Assumed, not fitted.
STRETCH_SHARE = 0.12
CACHED_NODES = 1 << 10

# The spread between physical hosts of one kind, as half the width of an interval that holds 95 % of
# them, relative to latencies that another host measured. It was chosen before it was compared on 14
# models (docs/measuring.md).
OTHER_HOST_SHARE = 0.08

# The last is for recorded programs: what Python and the engine do around a call is not the same
# in all programs. A share of its cost that was assumed and never fitted; it is a small part of the
# intervals in benchmarks/torch_steps.py.
CALL_OVERHEAD_SHARE = 0.5


def composition_s(
    total_s: float, occurrences: int, overhead_s: float, weight_bound_s: float = 0.0
) -> float:
    """Half the width, in seconds, that recomposing adds to an estimate's interval.

    ``weight_bound_s`` of the ``total_s`` are those of bricks that mostly read their weights.
    """
    return cache_state_s(total_s, weight_bound_s) + calls_s(occurrences, overhead_s)


def cache_state_s(total_s: float, weight_bound_s: float, stretch_s: float = 0.0) -> float:
    """The part of :func:`composition_s` that is due to the state of the caches.

    ``stretch_s`` are those of bricks of at least ``CACHED_NODES`` nodes.
    """
    return STATE_SHARE * total_s + WEIGHTS_SHARE * weight_bound_s + STRETCH_SHARE * stretch_s


def calls_s(occurrences: int, overhead_s: float) -> float:
    """The part of :func:`composition_s` that is due to the cost of calls."""
    return CALL_SHARE * overhead_s * occurrences


class Source(StrEnum):
    """A source of an estimate's uncertainty.

    ``PREDICTED``: bricks that were not measured. ``OTHER_STATE``: bricks that were measured in
    another machine state only. ``OTHER_HOST``: bricks that another host of the same kind measured.
    ``SAMPLES``: the spread of all other measurements. ``CALLS``: the
    cost of a call, which is subtracted from each brick. ``RECOMPOSITION``: the state of the caches.
    ``WORKERS``: interference between bricks that run in parallel.
    """

    PREDICTED = "predicted"
    OTHER_STATE = "other_state"
    OTHER_HOST = "other_host"
    SAMPLES = "samples"
    CALLS = "calls"
    RECOMPOSITION = "recomposition"
    WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Half the width of an estimate's interval in seconds, by :class:`Source`.

    The parts add up to half the width. Independent errors add as squares in the interval; each
    has here the part of their sum that is in proportion to its square.
    """

    predicted_s: float = 0.0
    other_state_s: float = 0.0
    other_host_s: float = 0.0
    samples_s: float = 0.0
    calls_s: float = 0.0
    recomposition_s: float = 0.0
    workers_s: float = 0.0

    @classmethod
    def of(cls, parts_s: Mapping[Source, float]) -> Uncertainty:
        """From the parts by source; those that are not given are zero."""
        return cls(**{f"{source}_s": part_s for source, part_s in parts_s.items()})

    @property
    def by_source(self) -> dict[Source, float]:
        """The parts in seconds, by source."""
        return {source: getattr(self, f"{source}_s") for source in Source}

    @property
    def half_width_s(self) -> float:
        """Half the width of the interval."""
        return sum(self.by_source.values())

    def scaled_to(self, half_width_s: float) -> Uncertainty:
        """The same parts in proportion, for an interval of another width."""
        total_s = self.half_width_s
        factor = half_width_s / total_s if total_s else 0.0
        return Uncertainty.of({source: factor * s for source, s in self.by_source.items()})

    def to_json(self) -> dict[str, float]:
        """The parts in seconds, by name."""
        return asdict(self)


class HalfWidth:
    """The distance that bricks' own errors put between an estimate and an end of its interval.

    They are independent, so they add up as squares do.
    """

    def __init__(self) -> None:
        self._squares = dict.fromkeys(Source, 0.0)

    def add(self, source: Source, part_s: float) -> None:
        """Add the uncertainty of one brick, in seconds."""
        self._squares[source] += part_s**2

    @property
    def total_s(self) -> float:
        """The distance in seconds."""
        return math.sqrt(sum(self._squares.values()))

    @property
    def by_source(self) -> dict[Source, float]:
        """The part of each source in seconds; they add up to the distance."""
        total_s = self.total_s
        return {s: square / total_s if total_s else 0.0 for s, square in self._squares.items()}
