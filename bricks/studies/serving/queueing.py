"""Simulates a server with :class:`Serving` options: its batching policy, queue and transport.

Must not know models or results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.compose.queueing.batching import BatchPolicy, BatchSeconds
from bricks.compose.queueing.idle import NO_IDLE_PENALTY, IdleModel
from bricks.compose.queueing.simulation import ServerRun, simulate, simulate_in_turn

if TYPE_CHECKING:
    from bricks.studies.serving.scenario import Serving
    from bricks.system.quota import Quota


def serve(
    arrivals_s: Sequence[float],
    serving: Serving,
    batch_s: BatchSeconds,
    idle_model: IdleModel = NO_IDLE_PENALTY,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate samples with the ascending arrival times ``arrivals_s``."""
    return simulate(
        arrivals_s,
        _instances(serving, batch_s, serving.timeout_s),
        max_queue=serving.max_queue,
        idle_model=idle_model,
        quota=quota,
        transport_s=serving.drawn_transports_s,
    )


def serve_in_turn(
    queries: int,
    samples: int,
    serving: Serving,
    batch_s: BatchSeconds,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate ``queries`` of ``samples`` each; the next arrives when one is done.

    All samples of a query arrive at once, so instances do not wait for a full batch.
    """
    instances = _instances(serving, batch_s, 0.0)
    transport_s = serving.drawn_transports_s
    return simulate_in_turn(queries, samples, instances, transport_s=transport_s, quota=quota)


def _instances(serving: Serving, batch_s: BatchSeconds, timeout_s: float) -> list[BatchPolicy]:
    return [BatchPolicy(serving.max_batch, timeout_s, batch_s) for _ in range(serving.instances)]
