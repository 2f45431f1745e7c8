"""Networks between ranks on this host: its loopback, or links of a given rate, measured here.

Must not know how ranks of other hosts are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from bricks.errors import UsageError
from bricks.measure.namespaces import namespaces
from bricks.measure.protocol.ranks import ReadInterface
from bricks.measure.ranks import LocalRanks, RankLocation, loopback
from bricks.network.collective import BESIDE, Aspect, Collective
from bricks.session.known_networks import network_called
from bricks.session.networks import (
    NetworkMeasured,
    NetworkRequest,
    collectives_settings,
    collectives_target,
    measure_on,
    network_of,
)
from bricks.system import System, fingerprint, logical_cpus
from bricks.system.interface import InterfaceFacts, interface_facts

if TYPE_CHECKING:
    from bricks.measure.progress import Progress
    from bricks.network.times import MeasuredNetwork
    from bricks.store import Store
    from bricks.system.network import NetworkFingerprint

_TIMEOUT_S = 60.0


@contextmanager
def local_rank_locations(
    ranks: int, bandwidth_bps: float | None, *, shaped: bool
) -> Iterator[Sequence[RankLocation]]:
    """Locations of ranks on this host: on loopback, or ``shaped``, in network namespaces.

    There, each sends at ``bandwidth_bps`` bits a second; None: as fast as the host can.
    """
    if not shaped:
        yield loopback(ranks)
        return
    rate = None if bandwidth_bps is None else round(bandwidth_bps)
    with namespaces(ranks, rate) as locations:
        yield locations


@contextmanager
def rank_locations_of(network: MeasuredNetwork, ranks: int) -> Iterator[Sequence[RankLocation]]:
    """Locations of ranks on this host that are joined as by ``network``, while it lasts.

    Raises :class:`UsageError` for a network between hosts, which cannot be set up on one.
    """
    identity = network.fingerprint["identity"]
    kind = identity["kind"]
    if not identity["same_host"] or kind not in ("loopback", "veth"):
        raise UsageError(
            f"network {network.name} is between hosts and cannot be set up on this one: choose one"
            " of 'bricks interconnect measure --loopback' or '--bandwidth'"
        )
    with local_rank_locations(ranks, identity["rate_bps"], shaped=kind == "veth") as locations:
        yield locations


def measure_locally(
    store: Store,
    request: NetworkRequest,
    *,
    shaped: bool = False,
    bandwidth_bps: float | None = None,
    progress: Progress = lambda what, share: None,
) -> NetworkMeasured:
    """Measure collectives between ranks on this host.

    See :func:`local_rank_locations`, and :func:`measure_on` for the errors.
    """
    request.refuse()
    settings, version = collectives_settings(request.backend, request.python)
    with (
        local_rank_locations(request.ranks, bandwidth_bps, shaped=shaped) as locations,
        LocalRanks(settings, locations) as workers,
    ):
        requests = [ReadInterface(location.interface) for location in locations]
        facts = workers.ask_each(requests, timeout_s=_TIMEOUT_S)
        system = store.systems.named(fingerprint())
        network = _on_this_host(request.name, facts, system)
        target = collectives_target(network, system, request.backend, version)
        return measure_on(store, workers, network, target, request, progress)


def _on_this_host(name: str, facts: Sequence[InterfaceFacts], system: System) -> NetworkFingerprint:
    """The network between ranks here; ``facts`` are of the interface of each."""
    ranks = len(facts)
    cores = min(1.0, len(logical_cpus()) / ranks)
    return network_of(name, facts, [system] * ranks, same_host=True, cores_per_rank=cores)


def loopback_network(
    store: Store,
    request: NetworkRequest,
    *,
    announce: Callable[[str], None] = lambda name: None,
    progress: Progress = lambda what, share: None,
) -> MeasuredNetwork:
    """This host's loopback with the measurements of ``request``, isolated and while computing.

    Measurements of this network under any name are not repeated. Before anything is measured,
    ``announce`` is called with the network's name. Raises the errors of :func:`measure_on`.
    """
    request.refuse()
    version = collectives_settings(request.backend, request.python)[1]
    system = store.systems.named(fingerprint())
    facts = [interface_facts(location.interface) for location in loopback(request.ranks)]
    network = _called_as_known(store, _on_this_host(request.name, facts, system), request.ranks)
    target = collectives_target(network, system, request.backend, version)
    keys = [key for collective in request.collectives for key in _aspects(collective)]
    if set(keys) - store.measurements.settled(target.key, keys):
        announce(network.name)
        named = replace(request, name=network.name, computing=True)
        measure_locally(store, named, progress=progress)
    return network_called(store, network.name)


def _called_as_known(store: Store, network: NetworkFingerprint, ranks: int) -> NetworkFingerprint:
    """``network`` under the name that it is known by, or one that no other network has."""
    names = {known.key: known.name for known, _ in store.systems.network_targets()}
    if network.key in names:
        return replace(network, name=names[network.key])
    others = set(names.values())
    free = (name for name in _names(network.name, ranks) if name not in others)
    return replace(network, name=next(free))


def _names(name: str, ranks: int) -> Iterator[str]:
    yield name
    for number in count(ranks):
        yield f"{name}-{number}"


def _aspects(of: Collective) -> list[str]:
    """Keys of a collective's measurements: isolated, and while ranks compute."""
    return [replace(of, aspect=aspect).key for aspect in (Aspect.ALONE, *BESIDE)]
