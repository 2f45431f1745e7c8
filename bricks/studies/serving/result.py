"""The result of a scenario: plain data, here so that reports need no simulation.

Must not know how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.studies.serving.service import ServiceTimes
from bricks.system import Target
from bricks.units.facts import with_ends
from bricks.units.interval import Interval

# The names of percentiles in results, with the share of the queries that are faster.
PERCENTILES: Mapping[str, float] = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0, "p999_s": 99.9}

# All figures of latencies.
LATENCIES = (*PERCENTILES, "trimmed_mean_s", "counted_s")
# What a batch takes in the worker, without those that it waits for.
IN_WORKER = ("worker_p50_s", "worker_counted_s")
SERVED = (*LATENCIES, "throughput", "max_qps", *IN_WORKER)


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

    FACTS: ClassVar = (
        "model", ("target.system", "system"), ("target.runtime", "runtime"),
        ("load.kind", "scenario"), ("load.qps", "qps"), ("load.arrivals", "arrivals"),
        ("load.samples", "samples_per_query"), ("load.slo_s", "slo_s"),
        ("load.counted_percentile", "percentile"), ("serving.max_batch", "max_batch"),
        ("serving.timeout_s", "batch_timeout_s"), ("serving.instances", "instances"),
        ("serving.max_queue", "max_queue"), ("serving.request_s", "request_cost_s"),
        ("serving.batch_s", "batch_cost_s"), ("serving.transport_s", "transport_s"),
        ("times.idle_model.onset_s", "falls_asleep_s"),
        ("times.idle_model.recovery_s", "wakes_s"),
        *(with_ends(f"latencies.{name}", name) for name in LATENCIES),
        "throughput", "utilisation", "dropped_share", "capacity_qps", "max_qps", "mean_batch",
        "saturated", "keeps_slo", "warnings", "best_batch",
        ("times.interpolation_error", "interpolation_error"), ("times.batches", "batches"),
        "checked",
    )  # fmt: skip

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
    errors: ClassVar[Sequence[str]] = ()

    @property
    def keeps_slo(self) -> bool | None:
        """Whether the bound is kept; None without one, or where the interval holds the bound."""
        counted_s, bound_s = self.latencies.get("counted_s"), self.load.slo_s
        if bound_s is None:
            return None
        if counted_s is None:
            return False
        if counted_s.low <= bound_s < counted_s.high:
            return None
        return counted_s.high <= bound_s


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

    FACTS: ClassVar = (
        *((f"figures.{name}", name) for name in SERVED), ("expected_figures", "expected"),
        "samples", "mean_batch", ("summaries", "loadgen"),
    )  # fmt: skip

    samples: int
    figures: Mapping[str, float]
    expected: Mapping[str, float]
    mean_batch: float
    serving: Serving
    summaries: Sequence[Mapping[str, Any]]

    @property
    def expected_figures(self) -> Mapping[str, float | None]:
        """``expected`` under all names that figures have."""
        return {name: self.expected.get(name) for name in SERVED}
