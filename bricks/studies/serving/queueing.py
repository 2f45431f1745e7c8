"""Samples served as options say: the server's policy, its bounds, and what answers take on the way.

Must not know models or results.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.compose.queueing.batching import BatchPolicy, BatchSeconds
from bricks.compose.queueing.idle import NO_IDLE_PENALTY, IdleModel
from bricks.compose.queueing.simulation import ServerRun, simulate, simulate_in_turn
from bricks.studies.serving.scenario import Serving


def serve(
    arrivals_s: Sequence[float],
    serving: Serving,
    batch_s: BatchSeconds,
    idle_model: IdleModel = NO_IDLE_PENALTY,
) -> ServerRun:
    """Serve samples that arrive at ``arrivals_s``, in order, in batches that take ``batch_s``."""
    return simulate(
        arrivals_s,
        _instances(serving, batch_s, serving.timeout_s),
        max_queue=serving.max_queue,
        idle_model=idle_model,
        transport_s=serving.on_the_way_s,
    )


def serve_in_turn(queries: int, samples: int, serving: Serving, batch_s: BatchSeconds) -> ServerRun:
    """Serve ``queries`` of ``samples`` each; the next arrives when all of one are served.

    All samples of a query are there at once, so instances wait for none.
    """
    instances = _instances(serving, batch_s, 0.0)
    return simulate_in_turn(queries, samples, instances, transport_s=serving.on_the_way_s)


def _instances(serving: Serving, batch_s: BatchSeconds, timeout_s: float) -> list[BatchPolicy]:
    return [BatchPolicy(serving.max_batch, timeout_s, batch_s) for _ in range(serving.instances)]
