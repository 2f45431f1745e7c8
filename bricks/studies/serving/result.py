"""The result of a scenario: plain data, here so that reports need no simulation.

Must not know how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.compose.slo import MeetsSlo, meets_slo
from bricks.units.facts import with_ends

if TYPE_CHECKING:
    from bricks.studies.serving.scenario import ScenarioLoad, Serving
    from bricks.studies.serving.service import ServiceTimes
    from bricks.system import Target
    from bricks.units.interval import Interval

# The names of percentiles in results, with the share of the queries that are faster.
PERCENTILES: Mapping[str, float] = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0, "p999_s": 99.9}

# All figures of latencies.
LATENCIES = (*PERCENTILES, "trimmed_mean_s", "counted_s")
# Seconds that a batch occupies the worker, without its time in the queue.
IN_WORKER = ("worker_p50_s", "worker_counted_s")
SERVED = (*LATENCIES, "throughput", "max_qps", *IN_WORKER)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The metrics of a model under a scenario.

    ``latencies`` are seconds by the names of ``PERCENTILES``; ``counted_s`` is the percentile of
    the SLO, ``trimmed_mean_s`` a mean without a tenth at either end. They are empty offline and
    above saturation; a high end is infinite if the server may be above saturation. ``throughput``
    is in samples a second; ``capacity_qps`` is the rate at which the server saturates, ``max_qps``
    the highest rate that meets the SLO (without an SLO, the capacity). ``utilisation`` is the share
    of time that instances are busy, ``mean_batch`` the mean batch size, ``best_batch`` the size
    after which throughput no longer grows. ``times`` are the latencies of batches.
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
        "saturated", "meets_slo", "warnings", "best_batch",
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
    def meets_slo(self) -> MeetsSlo | None:
        """Whether the SLO is met; None without an SLO."""
        counted_s, bound_s = self.latencies.get("counted_s"), self.load.slo_s
        if bound_s is None:
            return None
        return MeetsSlo.NO if counted_s is None else meets_slo(counted_s, bound_s)


@dataclass(frozen=True, slots=True)
class CheckedScenario:
    """Metrics of a scenario that MLPerf LoadGen drove on this host.

    ``figures`` are latencies in seconds by the names of :class:`ScenarioResult`, or offline
    ``throughput`` in samples a second; ``expected`` are their predictions for the real arrival
    times. ``max_qps`` is the highest rate at which real queries met the SLO, predicted in
    ``expected``; None unless it was searched and lies among the tried rates. ``mean_batch`` is the
    mean batch size. ``serving`` has the server's own costs. ``summaries`` are LoadGen's, one for
    each series.
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
        """``expected`` by the names of all metrics; None for a missing one."""
        return {name: self.expected.get(name) for name in SERVED}
