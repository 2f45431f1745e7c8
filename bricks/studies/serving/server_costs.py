"""Measures a server's own costs of a sample, of a batch and of transport, without a model.

Must not know what is predicted from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.queueing.metrics import trimmed_mean
from bricks.measure.load_generator import Queries

if TYPE_CHECKING:
    from bricks.measure.served import ServedModel, ServedQueries
    from bricks.studies.serving.scenario import Serving
    from bricks.studies.serving.service import ServiceTimes

# Queries to a server that runs no model: in a stream, and at the rate that is checked.
_EMPTY_QUERIES, _RATED_QUERIES = 150, 300
# The seed of their arrivals, other than that of real queries.
_OWN_SEED = 1000


def with_costs(
    served: ServedModel, serving: Serving, times: ServiceTimes, qps: float | None
) -> Serving:
    """``serving`` with the server's own costs; no other process may time meanwhile.

    In the server scenario, empty queries arrive at the same rate ``qps``, and occupy the server for
    as long as the model.
    """
    sizes = range(1, serving.max_batch + 1)
    isolated = served.serve(Queries("SingleStream", _EMPTY_QUERIES), stand_in_s=[0.0] * len(sizes))
    request_s = _request_s(served, serving.max_batch, isolated)
    if qps is None:
        batch_s = max(0.0, _batch_cost_s(isolated, request_s))
        return replace(
            serving, request_s=request_s, batch_s=batch_s, transport_s=_transport_s(isolated)
        )
    rated = Queries("Server", _RATED_QUERIES, qps, seed=_OWN_SEED)
    series = served.serve(rated, stand_in_s=[times.latency(size).value for size in sizes])
    transports_s = _transports_s(series)
    return replace(
        serving,
        request_s=request_s,
        batch_s=max(0.0, _batch_cost_s(series, request_s)),
        batches_s=_batch_costs_s(series, request_s),
        transport_s=max(0.0, float(np.median(transports_s))),
        transports_s=transports_s,
    )


def _request_s(served: ServedModel, largest: int, isolated: ServedQueries) -> float:
    """Seconds that a further sample adds to a batch of up to ``largest``."""
    if largest == 1:
        return 0.0
    several = Queries("MultiStream", _EMPTY_QUERIES, samples=largest)
    full = served.serve(several, stand_in_s=[0.0] * largest)
    largest = max(batch.size for batch in full.batches)
    batches = [batch for batch in full.batches if batch.size == largest]
    more_s = _batch_cost_s(replace(full, batches=batches), 0.0) - _batch_cost_s(isolated, 0.0)
    return max(0.0, more_s / max(1, largest - 1))


def _batch_cost_s(series: ServedQueries, request_s: float) -> float:
    """Seconds that a batch occupies an instance beyond its run and ``request_s`` a sample."""
    return trimmed_mean(_batch_costs_s(series, request_s))


def _batch_costs_s(series: ServedQueries, request_s: float) -> Sequence[float]:
    return [b.occupied_s - b.run_s - request_s * b.size for b in series.batches]


def _transport_s(series: ServedQueries) -> float:
    """Transport seconds of a query and its answer in a stream, as LoadGen measures them."""
    latency_s = 1e-9 * series.summary["result_50.00_percentile_latency_ns"]
    return max(0.0, float(latency_s - median(batch.occupied_s for batch in series.batches)))


def _transports_s(series: ServedQueries) -> Sequence[float]:
    """Transport seconds of each query and its answer: latency minus time in the server.

    LoadGen counts from the time at which a query should be issued: its mean delay is added to each
    query. Some are a little below 0, since an answer may arrive before the server continues.
    """
    here_s = [s for batch in series.batches for s in batch.here_s]
    late_s = 1e-9 * series.summary["result_mean_latency_ns"] - float(np.mean(series.latencies_s))
    transports_s = np.asarray(series.latencies_s) - np.asarray(here_s) + max(0.0, late_s)
    return [*map(float, transports_s)]
