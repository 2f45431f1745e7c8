"""A network between hosts of the fleet, measured into the coordinator's cache.

Must not know how hosts are reached, or how a rank is timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.fleet.hosts import Cluster
from bricks.fleet.ranks import RankHosts
from bricks.measure.progress import Progress
from bricks.measure.protocol.ranks import ReadInterface
from bricks.session.networks import NetworkMeasured, measure_on, network_of, refuse
from bricks.store import Store

_TIMEOUT_S = 60.0


def measure_between_hosts(
    cluster: Cluster,
    store: Store,
    name: str,
    *,
    ranks: int,
    backend: str,
    operations: Sequence[str],
    sizes: Sequence[int],
    computing: bool,
    progress: Progress,
    again: bool = False,
) -> NetworkMeasured:
    """Measure collectives between hosts of ``cluster``, a rank on each, as the network ``name``.

    Raises FleetError where hosts cannot take part; see
    :func:`~bricks.session.networks.measure_on` for other errors.
    """
    refuse(name, ranks, operations, sizes)
    with RankHosts(cluster, ranks, backend) as workers:
        requests = [ReadInterface(each["interface"]) for each in workers.facts]
        facts = workers.ask_each(requests, timeout_s=_TIMEOUT_S)
        network = network_of(
            name, facts, workers.systems,
            same_host=workers.same_host, cores_per_rank=workers.cores_per_rank,
        )  # fmt: skip
        version = workers.facts[0]["version"]
        return measure_on(
            store, workers, network, store.systems.named(workers.systems[0]),
            f"{backend} {version}",
            operations=operations, sizes=sizes, computing=computing, again=again,
            progress=progress,
        )  # fmt: skip
