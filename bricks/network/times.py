"""Networks that tell how long a collective takes: a measured one, and one that is only stated.

Every answer says where it comes from, and has an interval that grows from measured sizes over the
fit to ranks and sizes that nobody measured. Must not know how collectives are measured or stored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from bricks.errors import UsageError
from bricks.network.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    OPERATIONS,
    REDUCE_SCATTER,
    Aspect,
    Collective,
    written,
)
from bricks.network.fit import Fit, fit
from bricks.network.formulas import steps, volume
from bricks.network.interpolation import deviation_at, interpolated
from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import (
    MIN_RANKED,
    NORMAL_95,
    median,
    pooled_deviation,
    pooled_spread,
    spread,
)
from bricks.units.interval import Interval

__all__ = [
    "ALL_GATHER", "ALL_REDUCE", "BROADCAST", "EXTRAPOLATED", "FITTED", "MEASURED",
    "REDUCE_SCATTER", "STATED", "MeasuredNetwork", "Network", "Sourced", "StatedNetwork",
]  # fmt: skip

# From the most to the least that is known of a figure.
MEASURED, FITTED, EXTRAPOLATED, STATED = "measured", "fitted", "extrapolated", "stated"

# The relative standard deviation that the formula adds for each doubling of the ranks, where only
# one number of ranks was measured; and that of a size beyond all that were, for each doubling.
_PER_DOUBLING, _PER_DOUBLED_SIZE = 0.10, 0.05

# Rounds vary by no less than this, relative to them.
_MIN_DEVIATION = 0.01

# Threads of a backend and the thread that computes share a core: at worst each gets half of it.
_MAX_SHARING = 2.0


@dataclass(frozen=True, slots=True)
class Sourced:
    """A quantity, and where it comes from.

    ``origin`` is ``measured`` (at this size and these ranks), ``fitted`` (between measured sizes),
    ``extrapolated`` (by formula, beyond them) or ``stated``.
    """

    interval: Interval
    origin: str


def round_time(aspect: Aspect, taken: Round) -> float:
    """The time that a round of an aspect tells, in seconds.

    Of a collective alone it is that of its samples without outliers, as for any brick. Beside
    computing, waiting for the core is part of it and differs from pass to pass: there it is the
    mean.
    """
    if aspect is Aspect.COMPUTING:
        return sum(taken.host_s) / len(taken.host_s)
    return taken.latency_s


class Network(Protocol):
    """What ranks are joined by."""

    @property
    def name(self) -> str:
        """What its users call it."""

    @property
    def cores_per_rank(self) -> float:
        """The cores that each rank has, 1 at most: less where ranks share them."""

    def time(self, operation: str, num_bytes: int, ranks: int, *, computing: bool) -> Sourced:
        """Seconds of an operation on a tensor of ``num_bytes`` on each of so many ``ranks``.

        ``computing``: while the ranks compute on their cores.
        """

    def slowdown(self, ranks: int) -> Sourced:
        """The ratio by which a rank computes slower while a collective runs on its cores."""


_NOTHING = Sourced(Interval.exact(0.0), STATED)


@dataclass(frozen=True, slots=True)
class StatedNetwork:
    """A network that nobody measured: ``bandwidth`` in bytes/s, ``latency_s`` of a message.

    Rings and trees follow the formulas exactly; real backends take longer. What communicating costs
    a rank that computes is stated too, by default nothing; the interval reaches to an even share of
    the core.
    """

    bandwidth: float
    latency_s: float
    name: str = "stated"
    slowdown_ratio: float = 1.0
    cores_per_rank: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise UsageError(f"a bandwidth of {self.bandwidth:g} moves nothing")
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise UsageError(f"a latency of {self.latency_s:g} s cannot be")

    def time(self, operation: str, num_bytes: int, ranks: int, *, computing: bool) -> Sourced:
        """See :class:`Network`."""
        _refuse(operation, num_bytes, ranks)
        if ranks == 1:
            return _NOTHING
        latency_s = steps(operation, ranks) * self.latency_s
        seconds = latency_s + volume(operation, ranks) * num_bytes / self.bandwidth
        return Sourced(Interval.exact(seconds), STATED)

    def slowdown(self, ranks: int) -> Sourced:
        """See :class:`Network`."""
        if ranks == 1:
            return Sourced(Interval.exact(1.0), STATED)
        high = max(self.slowdown_ratio, _MAX_SHARING)
        return Sourced(Interval(self.slowdown_ratio, 1.0, high), STATED)


@dataclass(frozen=True)  # without slots: what follows from the samples is asked for many times
class MeasuredNetwork:
    """A network whose collectives were measured: ``samples`` by their keys.

    ``fingerprint`` are the facts that it is known by, as JSON.
    """

    name: str
    fingerprint: Mapping[str, Any]
    samples: Mapping[str, Measurement]

    @property
    def cores_per_rank(self) -> float:
        """See :class:`Network`."""
        return min(1.0, float(self.fingerprint["identity"]["cores_per_rank"]))

    def time(self, operation: str, num_bytes: int, ranks: int, *, computing: bool) -> Sourced:
        """See :class:`Network`; :class:`UsageError` for an operation that was not measured here."""
        _refuse(operation, num_bytes, ranks)
        if ranks == 1:
            return _NOTHING
        aspect = Aspect.COMPUTING if computing else Aspect.ALONE
        known = self.series(operation, aspect)
        if not known and computing:
            return _shared(self.time(operation, num_bytes, ranks, computing=False))
        if not known:
            raise UsageError(
                f"no {written(operation)} was measured on network {self.name}: run 'bricks network"
                f" measure {self.name} --operation {written(operation)}'"
            )
        if num_bytes in known.get(ranks, {}):
            return Sourced(self.measured(operation, num_bytes, ranks, aspect), MEASURED)
        if ranks in known:
            of = self.fit(operation, ranks, aspect)
            seconds, deviation = self._beside(operation, num_bytes, ranks, aspect)
            origin = FITTED if of.covers(num_bytes) else EXTRAPOLATED
            return _within(seconds, deviation, origin)
        return self._by_formula(operation, num_bytes, ranks, aspect)

    def slowdown(self, ranks: int) -> Sourced:
        """See :class:`Network`: the median over sizes and operations that were measured."""
        if ranks == 1:
            return Sourced(Interval.exact(1.0), MEASURED)
        known = self._slowdowns
        if not known:
            return Sourced(Interval(1.0, 1.0, _MAX_SHARING), EXTRAPOLATED)
        nearest = _nearest(known, ranks)
        ratios = sorted(max(1.0, ratio) for ratio in known[nearest])
        found = spread(ratios)
        if len(ratios) < MIN_RANKED:
            found = Interval(found.value, ratios[0], ratios[-1])
        return Sourced(found, MEASURED if nearest == ranks else EXTRAPOLATED)

    def series(self, operation: str, aspect: Aspect) -> dict[int, dict[int, list[float]]]:
        """The times of the rounds in seconds, by ranks and bytes."""
        return self._series.get((operation, aspect), {})

    def measured(self, operation: str, num_bytes: int, ranks: int, aspect: Aspect) -> Interval:
        """The median in seconds over rounds of what was measured.

        Few rounds do not show how much they vary: other sizes show that too.
        """
        of_ranks = self.series(operation, aspect)[ranks]
        deviation = max(_MIN_DEVIATION, pooled_deviation(of_ranks.values()))
        return pooled_spread(of_ranks[num_bytes], deviation)

    def fit(self, operation: str, ranks: int, aspect: Aspect) -> Fit:
        """The fit of an operation over the sizes that were measured with these ranks."""
        if (operation, ranks, aspect) not in self._fits:
            of = self.series(operation, aspect)[ranks]
            points = [(num_bytes, median(values)) for num_bytes, values in of.items()]
            self._fits[operation, ranks, aspect] = fit(points)
        return self._fits[operation, ranks, aspect]

    def _beside(
        self, operation: str, num_bytes: int, ranks: int, aspect: Aspect
    ) -> tuple[float, float]:
        """The time in seconds of a size that was not measured, and its relative deviation.

        It follows from the measured sizes beside it; below all of them, or where there are few, it
        is that of the fit.
        """
        sizes = self.series(operation, aspect)[ranks]
        between = interpolated([(size, median(taken)) for size, taken in sizes.items()])
        if between is None or num_bytes < min(sizes):
            return _fitted(self.fit(operation, ranks, aspect), num_bytes)
        beyond = _PER_DOUBLED_SIZE * max(0.0, math.log2(num_bytes / max(sizes)))
        return between.at(num_bytes).value, math.hypot(deviation_at(between, num_bytes), beyond)

    def _by_formula(self, operation: str, num_bytes: int, ranks: int, aspect: Aspect) -> Sourced:
        known = self.series(operation, aspect)
        base = _nearest(known, ranks)
        of = self.fit(operation, base, aspect)
        seconds = _scaled(of, operation, num_bytes, base, ranks)
        _, deviation = _fitted(of, num_bytes)
        doublings = abs(math.log2(ranks / base))
        extra = self._formula_deviation(operation, aspect) * doublings
        return _within(seconds, math.hypot(deviation, extra), EXTRAPOLATED)

    def _formula_deviation(self, operation: str, aspect: Aspect) -> float:
        """How wrong the formula is for each doubling of ranks, as far as that was measured."""
        known = self.series(operation, aspect)
        errors = []
        for base in known:
            for ranks in known:
                for num_bytes, values in known[ranks].items() if ranks > base else ():
                    seconds = _scaled(
                        self.fit(operation, base, aspect), operation, num_bytes, base, ranks
                    )
                    error = math.log(seconds / median(values)) / math.log2(ranks / base)
                    errors.append(error * error)
        if not errors:
            return _PER_DOUBLING
        return max(_PER_DOUBLING / 2, math.sqrt(sum(errors) / len(errors)))

    @cached_property
    def _series(self) -> dict[tuple[str, Aspect], dict[int, dict[int, list[float]]]]:
        found: dict[tuple[str, Aspect], dict[int, dict[int, list[float]]]] = {}
        for key, measurement in sorted(self.samples.items()):
            of = Collective.of(key)
            if of is not None:
                by_ranks = found.setdefault((of.operation, of.aspect), {})
                times = [round_time(of.aspect, each) for each in measurement.rounds]
                by_ranks.setdefault(of.ranks, {})[of.num_bytes] = times
        return found

    @cached_property
    def _fits(self) -> dict[tuple[str, int, Aspect], Fit]:
        return {}

    @cached_property
    def _slowdowns(self) -> dict[int, list[float]]:
        """The slowdown of each size of each operation, by ranks: the median over its rounds."""
        found: dict[int, list[float]] = defaultdict(list)
        for operation in OPERATIONS:
            before = self.series(operation, Aspect.UNIT_BEFORE)
            for ranks, sizes in self.series(operation, Aspect.UNIT_DURING).items():
                for num_bytes, during in sizes.items():
                    alone = before.get(ranks, {}).get(num_bytes, [])
                    if alone:
                        found[ranks].append(median(during) / median(alone))
        return dict(found)


def _refuse(operation: str, num_bytes: int, ranks: int) -> None:
    if operation not in OPERATIONS:
        raise UsageError(f"there is no collective {operation!r}: give one of {OPERATIONS}")
    if num_bytes < 0 or ranks < 1:
        raise UsageError(f"{num_bytes} bytes on {ranks} ranks cannot be")


def _nearest(known: Mapping[int, Any], ranks: int) -> int:
    """Of the numbers of ranks that are known, the largest up to ``ranks``, or the smallest."""
    below = [each for each in known if each <= ranks]
    return max(below) if below else min(known)


def _scaled(of: Fit, operation: str, num_bytes: int, base: int, ranks: int) -> float:
    """A time with ``base`` ranks carried to ``ranks`` by the formulas, in seconds."""
    piece = of.piece(num_bytes)
    # A negative latency is none: it says that the bytes of this piece are slower than others.
    fixed_s = max(0.0, piece.alpha_s) * steps(operation, ranks) / steps(operation, base)
    moved_s = num_bytes / piece.beta_bytes_per_s + min(0.0, piece.alpha_s)
    moved_s *= volume(operation, ranks) / volume(operation, base)
    return fixed_s + moved_s


def _fitted(of: Fit, num_bytes: int) -> tuple[float, float]:
    """The time in seconds, and the relative standard deviation of it."""
    seconds = of.time_s(num_bytes)
    if of.covers(num_bytes):
        return seconds, of.deviation_at(num_bytes)
    edge = of.sizes[0] if num_bytes < of.sizes[0] else of.sizes[-1]
    beyond = abs(math.log2(max(1, num_bytes) / edge))
    return seconds, math.hypot(of.deviation, _PER_DOUBLED_SIZE * beyond)


def _within(seconds: float, deviation: float, origin: str) -> Sourced:
    return Sourced(Interval.within_factor(seconds, math.exp(NORMAL_95 * deviation)), origin)


def _shared(alone: Sourced) -> Sourced:
    """The time beside computing where that was not measured: between alone and half of a core."""
    known_s = alone.interval
    middle_s = (1 + _MAX_SHARING) / 2 * known_s.value
    return Sourced(Interval(middle_s, known_s.low, _MAX_SHARING * known_s.high), EXTRAPOLATED)
