"""What a server itself takes for a sample, a batch and on the way: measured with one without model.

Must not know what is predicted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from scipy.stats import trim_mean

from bricks.measure.load_generator import Queries
from bricks.measure.served import ServedModel, ServedQueries
from bricks.studies.serving.scenario import Serving
from bricks.studies.serving.service import ServiceTimes

# Queries to a server that runs no model: in a stream, and at the rate that is checked.
_EMPTY_QUERIES, _RATED_QUERIES = 150, 300
# Their arrivals are not those of the real ones.
_OWN_SEED = 1000


def with_costs(
    served: ServedModel, serving: Serving, times: ServiceTimes, qps: float | None
) -> Serving:
    """``serving`` with what the server itself takes; nobody else may time meanwhile.

    In the server scenario it is asked at the same rate ``qps``, and kept busy for as long as a
    model.
    """
    sizes = range(1, serving.max_batch + 1)
    isolated = served.serve(Queries("SingleStream", _EMPTY_QUERIES), stand_in_s=[0.0] * len(sizes))
    request_s = _request_s(served, serving.max_batch, isolated)
    if qps is None:
        batch_s = max(0.0, _own_s(isolated, request_s))
        return replace(serving, request_s=request_s, batch_s=batch_s, transport_s=_way_s(isolated))
    rated = Queries("Server", _RATED_QUERIES, qps, seed=_OWN_SEED)
    found = served.serve(rated, stand_in_s=[times.latency(size).value for size in sizes])
    ways_s = _ways_s(found)
    return replace(
        serving,
        request_s=request_s,
        batch_s=max(0.0, _own_s(found, request_s)),
        batches_s=_owns_s(found, request_s),
        transport_s=max(0.0, float(np.median(ways_s))),
        transports_s=ways_s,
    )


def _request_s(served: ServedModel, largest: int, isolated: ServedQueries) -> float:
    """What a further sample in a batch takes, which has ``largest`` at most."""
    if largest == 1:
        return 0.0
    several = Queries("MultiStream", _EMPTY_QUERIES, samples=largest)
    full = served.serve(several, stand_in_s=[0.0] * largest)
    largest = max(batch.size for batch in full.batches)
    batches = [batch for batch in full.batches if batch.size == largest]
    more_s = _own_s(replace(full, batches=batches), 0.0) - _own_s(isolated, 0.0)
    return max(0.0, more_s / max(1, largest - 1))


def _own_s(series: ServedQueries, request_s: float) -> float:
    """What a batch takes of an instance, besides what it runs and ``request_s`` for each sample."""
    return float(trim_mean(_owns_s(series, request_s), 0.1))


def _owns_s(series: ServedQueries, request_s: float) -> Sequence[float]:
    return [b.occupied_s - b.run_s - request_s * b.size for b in series.batches]


def _way_s(series: ServedQueries) -> float:
    """What a query and its answer take besides the batch, as LoadGen has it, in a stream."""
    latency_s = 1e-9 * series.summary["result_50.00_percentile_latency_ns"]
    return max(0.0, float(latency_s - median(batch.occupied_s for batch in series.batches)))


def _ways_s(series: ServedQueries) -> Sequence[float]:
    """What each query and its answer take besides their time in the server.

    LoadGen counts from when a query should have been issued, so what it is late is part of it: all
    of them are as late as they are in the mean. Some seconds are a little below 0, as an answer may
    arrive before the server goes on.
    """
    here_s = [s for batch in series.batches for s in batch.here_s]
    late_s = 1e-9 * series.summary["result_mean_latency_ns"] - float(np.mean(series.latencies_s))
    ways_s = np.asarray(series.latencies_s) - np.asarray(here_s) + max(0.0, late_s)
    return [*map(float, ways_s)]
