"""The result of a scenario: plain data, here so that reports need no simulation.

Must not know how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.studies.serving.service import ServiceTimes
from bricks.system import Target
from bricks.units.interval import Interval

# The names of percentiles in results, with the share of the queries that are faster.
PERCENTILES: Mapping[str, float] = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0, "p999_s": 99.9}


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A model under a scenario.

    ``latencies`` are seconds by the names of ``PERCENTILES``, with ``counted_s`` for the
    percentile that the bound is for and ``trimmed_mean_s`` without a tenth at either end; empty
    where there are none: offline, and above saturation. The high end of one is infinite if the
    server may be above saturation. ``throughput`` is in samples a second; ``capacity_qps`` is the
    rate at which the server saturates, and ``max_qps`` the highest rate that keeps the bound
    (without a bound, the same). ``utilisation`` is the share of time that instances are busy.
    ``mean_batch`` is the mean size of a batch. ``best_batch`` is the size after which throughput
    no longer grows. ``times`` are the latencies of batches that all follows from.
    """

    model: str
    target: Target
    load: ScenarioLoad
    serving: Serving
    latencies: Mapping[str, Interval]
    throughput: Interval
    utilisation: Interval
    dropped_share: Interval
    mean_batch: float
    capacity_qps: Interval
    max_qps: Interval | None
    saturated: bool
    times: ServiceTimes
    best_batch: int
    warnings: Sequence[str]
    checked: CheckedScenario | None = None


@dataclass(frozen=True, slots=True)
class CheckedScenario:
    """The same scenario really served on this host, and driven by MLPerf LoadGen.

    ``figures`` are latencies in seconds by the names of :class:`ScenarioResult`, or offline
    ``throughput`` in samples a second; ``expected`` are the same as predicted for the queries that
    really came, at the times at which they came. ``max_qps`` is the highest rate at which real
    queries kept the bound, and ``expected`` has the one predicted for their arrivals; None where it
    was not looked for, or is not among the rates that were tried. ``mean_batch`` is the mean size
    of the batches that were run. ``serving`` has what the server itself takes. ``summaries`` are
    LoadGen's own, one for each series.
    """

    samples: int
    figures: Mapping[str, float]
    expected: Mapping[str, float]
    mean_batch: float
    serving: Serving
    summaries: Sequence[Mapping[str, Any]]
