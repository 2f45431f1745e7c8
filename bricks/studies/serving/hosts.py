"""How many hosts keep a bound at a rate, as far as intervals of latencies decide it.

Each host gets an equal share of the rate. Must not know models, nor how latencies are estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.queueing.batching import latencies_s
from bricks.compose.queueing.simulation import poisson_s, without_warm_up
from bricks.compose.slo import MeetsSlo
from bricks.units.draws import Drawn, interval_of

if TYPE_CHECKING:
    from bricks.studies.serving.scenario import ScenarioLoad, Serving
    from bricks.studies.serving.service import ServiceTimes
    from bricks.units.draws import Draw
    from bricks.units.interval import Interval

# Simulated requests at each rate of a search.
QUERIES = 20_000
# The relative precision of the highest rate.
_RATE_PRECISION = 0.002


@dataclass(frozen=True, slots=True)
class HostRange:
    """The hosts that a rate takes, of which every number in the range may be the right one.

    ``fewest`` may keep the bound: they do with some draw of the latencies. ``enough`` keep it with
    every draw. None: no number of hosts does.
    """

    fewest: int | None
    enough: int | None

    @property
    def hosts(self) -> int | None:
        """The number of hosts; None where intervals leave it open, or where no number keeps it."""
        return self.enough if self.enough == self.fewest else None

    @property
    def meets_slo(self) -> MeetsSlo:
        """Whether the SLO is met on so many hosts; uncertain where intervals leave it open."""
        if self.fewest is None:
            return MeetsSlo.NO
        return MeetsSlo.UNCERTAIN if self.hosts is None else MeetsSlo.YES


def least(ranges: Iterable[HostRange]) -> HostRange:
    """The hosts that the best of several settings takes; at least one setting."""
    known = list(ranges)
    return HostRange(
        min((of.fewest for of in known if of.fewest is not None), default=None),
        min((of.enough for of in known if of.enough is not None), default=None),
    )


class ServedRates:
    """The latencies of a server at any rate, with one draw of those of batches.

    All rates have the same arrivals, scaled, and the same noise.
    """

    def __init__(
        self,
        times: ServiceTimes,
        load: ScenarioLoad,
        serving: Serving,
        draw: Draw,
        *,
        seed: int,
        queries: int,
    ) -> None:
        self._load, self._instances = load, serving.instances
        self.capacity_qps = times.capacity_qps(serving, draw)
        self._batch_s = times.drawn_s(serving, draw, count=queries, seed=seed)
        self._known_s: dict[float, float] = {}  # by rate
        self._unit_arrivals = _unit_arrivals_s(queries, seed)

    def latency_s(self, qps: float) -> float:
        """The percentile of the bound at ``qps`` requests a second; infinite from capacity on."""
        if qps >= self.capacity_qps:
            return math.inf
        if qps not in self._known_s:
            waited_s = latencies_s(self._unit_arrivals / qps, self._instances, self._batch_s)
            self._known_s[qps] = self._percentile(without_warm_up(waited_s))
        return self._known_s[qps]

    @cached_property
    def idle_s(self) -> float:
        """The percentile of the bound where no request waits for others."""
        return self._percentile(self._batch_s[0])

    def _percentile(self, of_s: np.ndarray) -> float:
        return float(np.percentile(of_s, self._load.counted_percentile, method="inverted_cdf"))

    def keeps(self, qps: float) -> bool:
        """Whether the bound is kept at ``qps`` requests a second."""
        assert self._load.slo_s is not None
        return self.latency_s(qps) <= self._load.slo_s

    @cached_property
    def highest_qps(self) -> float:
        """The highest rate that keeps the bound; 0 if none does."""
        assert self._load.slo_s is not None
        if self.idle_s > self._load.slo_s:
            return 0.0
        low, high = 0.0, self.capacity_qps
        while high - low > _RATE_PRECISION * high and high > 1e-6:
            qps = (low + high) / 2
            low, high = (qps, high) if self.keeps(qps) else (low, qps)
        return low

    def hosts(self, qps: float) -> int | None:
        """The fewest hosts that keep the bound at ``qps`` in all; None if no number does."""
        if self.keeps(qps):
            return 1
        if not self.highest_qps:
            return None
        hosts = math.ceil(qps / self.highest_qps)
        return hosts if self.keeps(qps / hosts) else hosts + 1


@lru_cache(maxsize=2)
def _unit_arrivals_s(queries: int, seed: int) -> np.ndarray:
    """Arrivals of one request a second in the mean; drawn once for all settings."""
    return np.asarray(poisson_s(1.0, queries, seed))


class ServedSetting:
    """A model that is served in one setting at the rate and bound of ``load``, on any hosts."""

    def __init__(
        self,
        times: ServiceTimes,
        load: ScenarioLoad,
        serving: Serving,
        *,
        seed: int = 0,
        queries: int = QUERIES,
    ) -> None:
        assert load.qps is not None
        self.times, self.serving, self._qps = times, serving, load.qps
        self._rates: Drawn[ServedRates] = times.draws.map(
            lambda draw: ServedRates(times, load, serving, draw, seed=seed, queries=queries)
        )

    @cached_property
    def range(self) -> HostRange:
        """The hosts that the rate takes."""
        drawn = self._rates.draws
        needed = [rates.hosts(self._qps) for rates in drawn]
        possible = [hosts for hosts in needed if hosts is not None]
        if not possible:
            return HostRange(None, None)
        fewest = min(possible)
        if all(rates.keeps(self._qps / fewest) for rates in drawn):
            return HostRange(fewest, fewest)
        return HostRange(fewest, max(fewest + 1, *possible) if None not in needed else None)

    @cached_property
    def latency_s(self) -> Interval:
        """The percentile on the fewest hosts that may do; without waiting if no number does."""
        fewest = self.range.fewest
        if fewest is None:
            return interval_of(self._rates.map(lambda rates: rates.idle_s))
        return interval_of(self._rates.map(lambda rates: rates.latency_s(self._qps / fewest)))

    @cached_property
    def max_qps(self) -> Interval:
        """The highest rate at which one host keeps the bound."""
        return interval_of(self._rates.map(lambda rates: rates.highest_qps))
