"""What ``bricks scenario --json`` prints of a served model, as plain data.

Must not know options, nor how results are shown.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bricks.studies.serving.result import CheckedScenario, ScenarioResult
    from bricks.studies.serving.scenario import ScenarioLoad
    from bricks.units.interval import Interval

_NAMES = ("p50_s", "p90_s", "p99_s", "p999_s", "trimmed_mean_s", "counted_s")

# What a batch takes in the worker, without those that it waits for.
_IN_WORKER = ("worker_p50_s", "worker_counted_s")


def facts_of(result: ScenarioResult) -> dict[str, Any]:
    """What ``--json`` prints of a scenario; a figure that is not there, or has no end, is None."""
    load, serving = result.load, result.serving
    figures: dict[str, Interval | None] = {
        **{name: result.latencies.get(name) for name in _NAMES},
        "throughput": result.throughput,
        "utilisation": result.utilisation,
        "dropped_share": result.dropped_share,
        "capacity_qps": result.capacity_qps,
        "max_qps": result.max_qps,
    }
    return {
        "model": result.model,
        "system": result.target.system.to_json(),
        "runtime": result.target.runtime.to_json(),
        "scenario": str(load.kind),
        **_load_facts(load),
        "max_batch": serving.max_batch,
        "batch_timeout_s": serving.timeout_s,
        "instances": serving.instances,
        "max_queue": serving.max_queue,
        "request_cost_s": serving.request_s,
        "batch_cost_s": serving.batch_s,
        "transport_s": serving.transport_s,
        "falls_asleep_s": _finite(result.times.waking.falls_asleep_s),
        "wakes_s": _finite(result.times.waking.wakes_s),
        **{key: end for name, told in figures.items() for key, end in ends(name, told).items()},
        "mean_batch": result.mean_batch,
        "saturated": result.saturated,
        "keeps_slo": _keeps(result),
        "warnings": list(result.warnings),
        "best_batch": result.best_batch,
        "interpolation_error": result.times.interpolation_error,
        "batches": [
            {
                "batch": batch.size,
                **ends("latency_s", batch.latency_s),
                **ends("throughput", batch.throughput),
                **asdict(batch.provenance),
                "asleep_share": batch.asleep_share,
            }
            for batch in result.times.batches
        ],
        "checked": None if result.checked is None else _checked_facts(result.checked),
    }


def _checked_facts(checked: CheckedScenario) -> dict[str, Any]:
    """What was served, under the names of the prediction; ``expected`` is for the same arrivals."""
    names = (*_NAMES, "throughput", "max_qps", *_IN_WORKER)
    return {
        **{name: checked.figures.get(name) for name in names},
        "expected": {name: checked.expected.get(name) for name in names},
        "samples": checked.samples,
        "mean_batch": checked.mean_batch,
        "loadgen": list(checked.summaries),
    }


def _load_facts(load: ScenarioLoad) -> dict[str, Any]:
    return {
        "qps": load.qps,
        "arrivals": None if load.arrivals_s is None else len(load.arrivals_s),
        "samples_per_query": load.samples,
        "slo_s": load.slo_s,
        "percentile": load.counted_percentile,
    }


def ends(name: str, figure: Interval | None) -> dict[str, float | None]:
    """The figure and the ends of its interval; None where it is not there, or has no end."""
    keys = (name, f"{name}_low", f"{name}_high")
    if figure is None:
        return dict.fromkeys(keys)
    ends = (figure.value, figure.low, figure.high)
    return {key: _finite(end) for key, end in zip(keys, ends, strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _keeps(result: ScenarioResult) -> bool | None:
    """Whether the bound is kept; None without one, or where the interval holds the bound."""
    counted, bound_s = result.latencies.get("counted_s"), result.load.slo_s
    if bound_s is None:
        return None
    if counted is None:
        return False
    if counted.low <= bound_s < counted.high:
        return None
    return counted.high <= bound_s
