"""Networks that estimate how long a collective takes: measured ones, stated ones, and NVLink.

Each estimate has its origin; its interval grows from measured sizes over the fit to ranks and sizes
without measurements. NVLink's times follow from its published bandwidth: NCCL chooses a protocol by
the cost model of its own source (NVIDIA/nccl, ``src/graph/tuning.cc``), a latency of each
collective, one of each step round the ring, and a share of the links' bandwidth. Its constants are
used here as published; no collective was run. Must not know how collectives are measured or stored.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from bricks.errors import UsageError
from bricks.network.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    OPERATIONS,
    REDUCE_SCATTER,
    Aspect,
    Collective,
    steps,
    volume,
    written,
)
from bricks.network.series import SizeSeries
from bricks.samples.statistics import MIN_RANKED, NORMAL_95, spread
from bricks.system.cards import NvLink, card_of
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.network.series import Fit
    from bricks.samples.measurement import Measurement, Round
    from bricks.system.accelerator import Accelerator

__all__ = [
    "ALL_GATHER", "ALL_REDUCE", "BROADCAST", "EXTRAPOLATED", "FITTED", "MEASURED", "PUBLISHED",
    "REDUCE_SCATTER", "STATED", "MeasuredNetwork", "Network", "NetworkEstimate", "StatedNetwork",
]  # fmt: skip

# Origins of an estimate, from the most to the least certain.
MEASURED, FITTED, EXTRAPOLATED = "measured", "fitted", "extrapolated"
PUBLISHED, STATED = "published", "stated"

# The relative standard deviation of the formula for each doubling of the ranks, where only one
# number of ranks was measured.
_PER_DOUBLING = 0.10

# Threads of a backend and the thread that computes share a core: at worst each gets half of it.
_MAX_SHARING = 2.0

# How far a collective may be off in either direction. Assumed: none was run.
UNCHECKED_FACTOR = 2.0

# A rank computes this much slower at most while NCCL's channels, 32 of them, occupy as many of the
# 132 multiprocessors of an H100. Assumed of all cards.
_MAX_SLOWDOWN = 132 / (132 - 32)


@dataclass(frozen=True, slots=True)
class NetworkEstimate:
    """Seconds of a collective, or a slowdown ratio, with its origin.

    ``origin`` is ``measured`` (at this size and these ranks), ``fitted`` (between measured sizes),
    ``extrapolated`` (by formula, beyond them), ``published`` (by formula, from data sheets) or
    ``stated``.
    """

    interval: Interval
    origin: str


def round_time(aspect: Aspect, samples: Round) -> float:
    """The time of a round in seconds.

    Of an isolated collective it excludes outliers, as for any brick. With computation, waiting for
    the core is part of it and differs from pass to pass: there it is the mean.
    """
    if aspect is Aspect.COMPUTING:
        return sum(samples.host_s) / len(samples.host_s)
    return samples.latency_s


class Network(Protocol):
    """The links between ranks."""

    @property
    def name(self) -> str:
        """The name that users gave it."""

    @property
    def cores_per_rank(self) -> float:
        """The cores of each rank, at most 1: less where ranks share them."""

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """Seconds of an operation on a tensor of ``num_bytes`` on each of ``ranks``.

        ``computing``: while the ranks compute on their cores.
        """

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """The ratio by which a rank computes slower while a collective runs on its cores."""


# A single rank sends nothing.
NOTHING = NetworkEstimate(Interval.exact(0.0), STATED)


@dataclass(frozen=True, slots=True)
class StatedNetwork:
    """A network without measurements: ``bandwidth`` in bytes/s, ``latency_s`` of a message.

    Times follow the formulas exactly; real backends take longer. ``slowdown_ratio`` is that of a
    rank that computes meanwhile; its interval reaches to an even share of the core.
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

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`Network`."""
        refuse_impossible(operation, num_bytes, ranks)
        if ranks == 1:
            return NOTHING
        latency_s = steps(operation, ranks) * self.latency_s
        seconds = latency_s + volume(operation, ranks) * num_bytes / self.bandwidth
        return NetworkEstimate(Interval.exact(seconds), STATED)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`Network`."""
        if ranks == 1:
            return NetworkEstimate(Interval.exact(1.0), STATED)
        high = max(self.slowdown_ratio, _MAX_SHARING)
        return NetworkEstimate(Interval(self.slowdown_ratio, 1.0, high), STATED)


@dataclass(frozen=True)  # without slots: cached properties
class MeasuredNetwork:
    """A network with measured collectives: ``samples`` by their keys.

    ``fingerprint`` holds the facts that identify it, as JSON.
    """

    name: str
    fingerprint: Mapping[str, Any]
    samples: Mapping[str, Measurement]

    @property
    def same_host(self) -> bool:
        """Whether all ranks are on one host."""
        return bool(self.fingerprint["identity"]["same_host"])

    @property
    def cores_per_rank(self) -> float:
        """See :class:`Network`."""
        return min(1.0, float(self.fingerprint["identity"]["cores_per_rank"]))

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`Network`; :class:`UsageError` for an operation without measurements."""
        refuse_impossible(operation, num_bytes, ranks)
        if ranks == 1:
            return NOTHING
        by_ranks = self.series(operation, Aspect.COMPUTING if computing else Aspect.ALONE)
        if not by_ranks and computing:
            time_s = self.time(operation, num_bytes, ranks, computing=False).interval
            middle_s = (1 + _MAX_SHARING) / 2 * time_s.value
            return NetworkEstimate(
                Interval(middle_s, time_s.low, _MAX_SHARING * time_s.high), EXTRAPOLATED
            )
        if not by_ranks:
            raise UsageError(
                f"no {written(operation)} was measured on network {self.name}: run 'bricks"
                f" interconnect measure {self.name} --operation {written(operation)}'"
            )
        if ranks not in by_ranks:
            return _by_formula(by_ranks, operation, num_bytes, ranks)
        series = by_ranks[ranks]
        if num_bytes in series.rounds_s:
            return NetworkEstimate(series.measured(num_bytes), MEASURED)
        origin = FITTED if series.fit.covers(num_bytes) else EXTRAPOLATED
        return _within(*series.estimate(num_bytes), origin)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`Network`: the median over measured sizes and operations."""
        if ranks == 1:
            return NetworkEstimate(Interval.exact(1.0), MEASURED)
        if not self._slowdowns:
            return NetworkEstimate(Interval(1.0, 1.0, _MAX_SHARING), EXTRAPOLATED)
        nearest = _nearest(self._slowdowns, ranks)
        ratios = sorted(max(1.0, ratio) for ratio in self._slowdowns[nearest])
        ratio = spread(ratios)
        if len(ratios) < MIN_RANKED:
            ratio = Interval(ratio.value, ratios[0], ratios[-1])
        return NetworkEstimate(ratio, MEASURED if nearest == ranks else EXTRAPOLATED)

    def series(self, operation: str, aspect: Aspect) -> Mapping[int, SizeSeries]:
        """The measured times of an operation by the number of ranks."""
        return self._series.get((operation, aspect), {})

    @cached_property
    def _series(self) -> dict[tuple[str, Aspect], dict[int, SizeSeries]]:
        rounds_s: dict[tuple[str, Aspect], dict[int, dict[int, list[float]]]] = {}
        for key, measurement in sorted(self.samples.items()):
            of = Collective.of(key)
            if of is not None:
                by_ranks = rounds_s.setdefault((of.operation, of.aspect), {})
                times_s = [round_time(of.aspect, each) for each in measurement.rounds]
                by_ranks.setdefault(of.ranks, {})[of.num_bytes] = times_s
        return {
            key: {ranks: SizeSeries(by_size) for ranks, by_size in by_ranks.items()}
            for key, by_ranks in rounds_s.items()
        }

    @cached_property
    def _slowdowns(self) -> dict[int, list[float]]:
        """The ratio of each size of each operation, by ranks: medians over rounds."""
        ratios: dict[int, list[float]] = defaultdict(list)
        for operation in OPERATIONS:
            before = self.series(operation, Aspect.UNIT_BEFORE)
            for ranks, during in self.series(operation, Aspect.UNIT_DURING).items():
                before_s = dict(before[ranks].medians_s) if ranks in before else {}
                for num_bytes, during_s in during.medians_s:
                    if num_bytes in before_s:
                        ratios[ranks].append(during_s / before_s[num_bytes])
        return dict(ratios)


def refuse_impossible(operation: str, num_bytes: int, ranks: int) -> None:
    """Raise :class:`UsageError` for an unknown operation, and for no ranks."""
    if operation not in OPERATIONS:
        raise UsageError(f"there is no collective {operation!r}: give one of {OPERATIONS}")
    if num_bytes < 0 or ranks < 1:
        raise UsageError(f"{num_bytes} bytes on {ranks} ranks cannot be")


def _nearest(by_ranks: Mapping[int, Any], ranks: int) -> int:
    """Return the largest measured number of ranks up to ``ranks``, or the smallest."""
    return max((count for count in by_ranks if count <= ranks), default=min(by_ranks))


def _by_formula(
    by_ranks: Mapping[int, SizeSeries], operation: str, num_bytes: int, ranks: int
) -> NetworkEstimate:
    """The time with a number of ranks that was not measured."""
    base = _nearest(by_ranks, ranks)
    fit = by_ranks[base].fit
    _, deviation = fit.estimate(num_bytes)
    extra = _formula_deviation(by_ranks, operation) * abs(math.log2(ranks / base))
    time_s = _scaled(fit, operation, num_bytes, base, ranks)
    return _within(time_s, math.hypot(deviation, extra), EXTRAPOLATED)


def _formula_deviation(by_ranks: Mapping[int, SizeSeries], operation: str) -> float:
    """The relative error of the formula for each doubling of ranks, or a default."""
    squares = []
    for base, ranks in itertools.permutations(by_ranks, 2):
        for num_bytes, measured_s in by_ranks[ranks].medians_s if ranks > base else ():
            time_s = _scaled(by_ranks[base].fit, operation, num_bytes, base, ranks)
            squares.append((math.log(time_s / measured_s) / math.log2(ranks / base)) ** 2)
    if not squares:
        return _PER_DOUBLING
    return max(_PER_DOUBLING / 2, math.sqrt(sum(squares) / len(squares)))


def _scaled(fit: Fit, operation: str, num_bytes: int, base: int, ranks: int) -> float:
    """Scale a time with ``base`` ranks to ``ranks`` by the formulas, in seconds."""
    segment = fit.segment(num_bytes)
    # A negative alpha is no latency: the bytes of this segment are slower than others.
    latency_s = max(0.0, segment.alpha_s) * steps(operation, ranks) / steps(operation, base)
    transfer_s = num_bytes / segment.beta_bytes_per_s + min(0.0, segment.alpha_s)
    return latency_s + transfer_s * (volume(operation, ranks) / volume(operation, base))


def _within(seconds: float, deviation: float, origin: str) -> NetworkEstimate:
    return NetworkEstimate(Interval.within_factor(seconds, math.exp(NORMAL_95 * deviation)), origin)


@dataclass(frozen=True, slots=True)
class NcclProtocol:
    """A protocol of NCCL: seconds of a collective and of a step, and the share of bandwidth."""

    base_s: float
    step_s: float
    bandwidth_share: float


# LL, LL128 and Simple on a ring over NVLink.
PROTOCOLS: Sequence[NcclProtocol] = (
    NcclProtocol(6.6e-6, 0.6e-6, 0.5),
    NcclProtocol(14.0e-6, 1.9e-6, 0.92),
    NcclProtocol(8.4e-6, 3.4e-6, 1.0),
)


@dataclass(frozen=True, slots=True)
class LinkedCards:
    """Cards that ``nvlink`` joins, by NCCL's cost model."""

    nvlink: NvLink
    name: str = "NVLink"
    cores_per_rank: float = 1.0

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`: the time of the fastest protocol."""
        refuse_impossible(operation, num_bytes, ranks)
        if ranks == 1:
            return NOTHING
        messages, sent_bytes = steps(operation, ranks), volume(operation, ranks) * num_bytes
        seconds = min(
            of.base_s
            + messages * of.step_s
            + sent_bytes / (of.bandwidth_share * self.nvlink.one_way_bytes_per_s)
            for of in PROTOCOLS
        )
        return NetworkEstimate(Interval.within_factor(seconds, UNCHECKED_FACTOR), PUBLISHED)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        if ranks == 1:
            return NetworkEstimate(Interval.exact(1.0), STATED)
        return NetworkEstimate(Interval(1.0, 1.0, _MAX_SLOWDOWN), PUBLISHED)


def linked_cards(accelerator: Accelerator | None) -> LinkedCards | None:
    """The cards that NVLink joins with one like ``accelerator``; None if it has none."""
    card = None if accelerator is None else card_of(accelerator)
    return None if card is None or card.nvlink is None else LinkedCards(card.nvlink)


@dataclass(frozen=True, slots=True)
class CardsThenHosts:
    """``cards`` for as many ranks as they are; between more, the network ``hosts``."""

    cards: LinkedCards
    hosts: Network

    @property
    def name(self) -> str:
        """See :class:`~bricks.network.times.Network`."""
        return self.cards.name

    @property
    def cores_per_rank(self) -> float:
        """See :class:`~bricks.network.times.Network`."""
        return self.cards.cores_per_rank

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        return self._between(ranks).time(operation, num_bytes, ranks, computing=computing)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        return self._between(ranks).slowdown(ranks)

    def _between(self, ranks: int) -> Network:
        return self.cards if ranks <= self.cards.nvlink.cards else self.hosts
