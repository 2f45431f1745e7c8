"""A network between hosts of the fleet, measured into the coordinator's cache.

Must not know how hosts are reached, or how a rank is timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.fleet.ranks import RankHosts
from bricks.measure.protocol.ranks import ReadInterface
from bricks.session.networks import (
    NetworkMeasured,
    NetworkRequest,
    collectives_target,
    measure_on,
    network_of,
)

if TYPE_CHECKING:
    from bricks.fleet.hosts import Cluster
    from bricks.measure.progress import Progress
    from bricks.store import Store

_TIMEOUT_S = 60.0


def measure_between_hosts(
    cluster: Cluster, store: Store, request: NetworkRequest, progress: Progress
) -> NetworkMeasured:
    """Measure collectives between hosts of ``cluster``, a rank on each.

    Raises FleetError where hosts cannot take part; see
    :func:`~bricks.session.networks.measure_on` for other errors.
    """
    request.refuse()
    with RankHosts(cluster, request.ranks, request.backend) as workers:
        requests = [ReadInterface(host_facts["interface"]) for host_facts in workers.facts]
        facts = workers.ask_each(requests, timeout_s=_TIMEOUT_S)
        network = network_of(
            request.name, facts, workers.systems,
            same_host=workers.same_host, cores_per_rank=workers.cores_per_rank,
        )  # fmt: skip
        system, version = store.systems.named(workers.systems[0]), workers.facts[0]["version"]
        target = collectives_target(network, system, request.backend, version)
        return measure_on(store, workers, network, target, request, progress)
