"""Networks measured into a cache, between ranks on this host or on several; loaded again.

Here because collectives are measured into a cache as bricks are. On this host, ranks use its
loopback, or links of a given rate. Must not know how ranks are reached, nor how anything is shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.errors import UsageError, suggestion
from bricks.measure.collectives import CollectiveCampaign, CollectivesMeasured, known_collectives
from bricks.measure.protocol.training import ReadInterface
from bricks.measure.ranks import LocalRanks, RankLocation, Ranks, loopback, namespaces
from bricks.measure.supervisor import WorkerSettings
from bricks.network.collective import BESIDE, OPERATIONS, Aspect, Collective, operation_of, volume
from bricks.network.times import MeasuredNetwork
from bricks.session.targets import version_numbers
from bricks.system import Runtime, System, Target, fingerprint, logical_cpus
from bricks.system.interface import InterfaceFacts, interface_facts
from bricks.system.network import NetworkFingerprint
from bricks.units.facts import json_of

if TYPE_CHECKING:
    from bricks.backends import Offer
    from bricks.measure.campaign_result import Progress
    from bricks.store import Store

# Powers of four, from the gradients of one layer to those of a large model.
SIZES = tuple(1024 * 4**power for power in range(10))

# Gradients in one message are rarely larger; what is, is extrapolated.
CHECKED_SIZES = SIZES[:-1]

MIN_RANKS, MAX_RANKS = 2, 64

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """A request to measure a network as ``name``, between ``ranks`` over a collective ``backend``.

    Each of ``operations`` is measured with each of ``sizes`` in bytes; with ``computing``, also
    while ranks compute; with ``again``, measured collectives get further rounds. Ranks on this host
    run in ``python``, as in :func:`bricks.backends.describe`.
    """

    name: str
    ranks: int = 2
    backend: str = "gloo"
    operations: Sequence[str] = OPERATIONS
    sizes: Sequence[int] = SIZES
    computing: bool = False
    again: bool = False
    python: str | None = None

    def refuse(self) -> None:
        """Raise :class:`UsageError` if the network cannot be measured."""
        if not self.name.strip() or not self.name.isprintable():
            raise UsageError(f"{self.name!r} is no name: give one of printable characters")
        if not MIN_RANKS <= self.ranks <= MAX_RANKS:
            raise UsageError(
                f"{self.ranks} ranks cannot communicate: give {MIN_RANKS} to {MAX_RANKS}"
            )
        for operation in self.operations:
            operation_of(operation)
        if not self.sizes or min(self.sizes) < 1:
            raise UsageError("there is no size to measure: give larger ones")

    @property
    def collectives(self) -> list[Collective]:
        """The collectives to measure."""
        named = map(operation_of, self.operations)
        return [
            Collective(operation, size, self.ranks) for operation in named for size in self.sizes
        ]


@dataclass(frozen=True, slots=True)
class NetworkMeasured:
    """The result of measuring a network: its fingerprint, its target, and the collectives."""

    network: NetworkFingerprint
    target: Target
    done: CollectivesMeasured


def collectives_settings(backend: str, python: str | None = None) -> tuple[WorkerSettings, str]:
    """Settings of workers that are ranks over ``backend`` in ``python``, and its package's version.

    Raises :class:`UsageError` for an unknown backend, and :class:`BackendError` for one that cannot
    be used here.
    """
    info = _offering(backend).in_python(python).for_ranks(backend)
    return WorkerSettings(info.name, 1, 0, python=info.python), info.version


def _offering(backend: str) -> Offer:
    offers = {name: offer for offer in backends.offers() for name in offer.collectives}
    if backend not in offers:
        raise UsageError(f"no backend is called {backend!r}: {suggestion(backend, offers)}")
    return offers[backend]


def collectives_target(
    network: NetworkFingerprint, system: System, backend: str, version: str
) -> Target:
    """The target of collectives on ``network``; ``system`` is that of the first rank."""
    return Target(system, Runtime(backend, version, "CPU", 1, "none", network=network.key))


def network_of(
    name: str,
    facts: Sequence[InterfaceFacts],
    systems: Sequence[System],
    *,
    same_host: bool,
    cores_per_rank: float,
) -> NetworkFingerprint:
    """The fingerprint of the network between ranks; ``facts`` are of each rank's interface."""
    first = facts[0]
    unlike = [interface for interface in facts if interface.decisive != first.decisive]
    if unlike:
        raise UsageError(
            f"the interfaces of the ranks differ ({first.decisive} and {unlike[0].decisive}):"
            " measure between hosts whose interfaces are alike"
        )
    identity = {
        **first.decisive,
        "systems": sorted({system.key for system in systems}),
        "same_host": same_host,
        "cores_per_rank": cores_per_rank,
    }
    return NetworkFingerprint(name, identity, {"speed_mbps": first.speed_mbps})


def measure_on(
    store: Store,
    ranks: Ranks,
    network: NetworkFingerprint,
    target: Target,
    request: NetworkRequest,
    progress: Progress,
) -> NetworkMeasured:
    """Measure the collectives between ``ranks`` on ``network`` that the cache is missing.

    Raises :class:`UsageError` if the name is that of another network, or the network has another
    name, and :class:`~bricks.errors.WorkerError` if a rank fails: all rounds until then are kept.
    """
    for known, _ in store.systems.network_targets():
        if known.name == network.name and known.key != network.key:
            changes = ", ".join(
                f"{fact} {there} there and {here} here"
                for fact, (there, here) in known.differences(network).items()
            )
            raise UsageError(
                f"another network is called {network.name!r} ({changes}): give another name"
            )
        if known.key == network.key and known.name != network.name:
            raise UsageError(
                f"this network is known as {known.name!r}: run 'bricks interconnect measure"
                f" {known.name}' with the same options, which measures what is missing, and with"
                " --again further rounds of all"
            )
    store.systems.save_network(network)
    store.systems.save_target(target)
    exclusive = _offering(target.runtime.backend).computes
    campaign = CollectiveCampaign(store, ranks, target.key, progress, exclusive=exclusive)
    done = campaign.run(request.collectives, computing=request.computing, again=request.again)
    return NetworkMeasured(network, target, done)


def measured_networks(store: Store) -> list[MeasuredNetwork]:
    """All networks of the cache, one for each version of a backend, by name."""
    networks = []
    for network, target in store.systems.network_targets():
        facts = {
            **network.to_json(),
            "target": target.key,
            "backend": target.runtime.backend,
            "version": target.runtime.version,
        }
        networks.append(MeasuredNetwork(network.name, facts, known_collectives(store, target.key)))
    return networks


def network_called(store: Store, name: str) -> MeasuredNetwork:
    """The network with this name or key, measured with its newest backend.

    Raises :class:`UsageError` if there is none, or nothing is measured on it.
    """
    networks = measured_networks(store)
    matching = [
        network for network in networks if name in (network.name, network.fingerprint["key"])
    ]
    known = sorted({network.name for network in networks})
    if not matching:
        meant = suggestion(name, known, "known are") if known else "none is known yet"
        raise UsageError(
            f"no network is called {name!r}: {meant}; 'bricks interconnect measure {name}' makes it"
            " known"
        )
    matching = [network for network in matching if network.samples]
    if not matching:
        raise UsageError(
            f"nothing is measured on network {name!r} yet: run 'bricks interconnect measure {name}'"
        )
    return max(matching, key=lambda network: version_numbers(network.fingerprint["version"]))


def fits(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """The fits of all operations by ranks, isolated and while ranks compute."""
    found = []
    for operation, aspect in itertools.product(OPERATIONS, (Aspect.ALONE, Aspect.COMPUTING)):
        for ranks, series in sorted(network.series(operation, aspect).items()):
            fit, points = series.fit, list[dict[str, Any]]()
            for num_bytes, residual in zip(fit.sizes, fit.residuals, strict=True):
                time_s = series.measured(num_bytes)
                points.append({
                    "num_bytes": num_bytes,
                    "seconds": time_s.value, "low_s": time_s.low, "high_s": time_s.high,
                    "rounds": len(series.rounds_s[num_bytes]),
                    "residual": residual,
                    # The bandwidth of a link as nccl-tests counts it.
                    "bus_bytes_per_s": volume(operation, ranks) * num_bytes / time_s.value,
                })  # fmt: skip
            found.append({
                "operation": operation,
                "ranks": ranks,
                "computing": aspect is Aspect.COMPUTING,
                "deviation": fit.deviation,
                "pieces": json_of(fit.segments),
                "points": points,
            })  # fmt: skip
    return found


def slowdowns(network: MeasuredNetwork) -> list[dict[str, Any]]:
    """By ranks, the slowdown of computing during a collective; empty if not measured."""
    ranks = {
        count for operation in OPERATIONS for count in network.series(operation, Aspect.UNIT_DURING)
    }
    rows = []
    for count in sorted(ranks):
        ratio = network.slowdown(count).interval
        rows.append({"ranks": count, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return rows


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
    network = _on_this_host(request.name, facts, system)
    names = {known.key: known.name for known, _ in store.systems.network_targets()}
    # Under the name that it is known by, or one that no other network has.
    numbered = (f"{network.name}-{number}" for number in itertools.count(request.ranks))
    free = (n for n in itertools.chain((network.name,), numbered) if n not in names.values())
    network = replace(network, name=names.get(network.key) or next(free))
    target = collectives_target(network, system, request.backend, version)
    aspects = (Aspect.ALONE, *BESIDE)
    keys = [replace(of, aspect=aspect).key for of in request.collectives for aspect in aspects]
    if set(keys) - store.measurements.settled(target.key, keys):
        announce(network.name)
        named = replace(request, name=network.name, computing=True)
        measure_locally(store, named, progress=progress)
    return network_called(store, network.name)
