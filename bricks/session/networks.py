"""Networks of a cache: measure one under a name, list them, and load one to predict with.

Here because a network is measured into a cache as bricks are, by the backends of this host. Must
not know how ranks of other hosts are reached, nor how anything is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from bricks import backends
from bricks.backends import Offer
from bricks.errors import UsageError, suggestion
from bricks.measure.collectives import CollectiveCampaign, CollectivesMeasured, known_collectives
from bricks.measure.namespaces import namespaces
from bricks.measure.progress import Progress
from bricks.measure.protocol.ranks import ReadInterface
from bricks.measure.ranks import LocalRanks, RankPlace, Ranks, loopback
from bricks.measure.supervisor import WorkerSettings
from bricks.network.collective import BESIDE, OPERATIONS, Aspect, Collective, operation_of
from bricks.network.times import MeasuredNetwork
from bricks.store import Store
from bricks.system import Runtime, System, Target, fingerprint, logical_cpus
from bricks.system.interface import interface_facts
from bricks.system.network import NetworkFingerprint

# Powers of four, from the gradients of one layer to those of a large model.
SIZES = tuple(1024 * 4**power for power in range(10))

MIN_RANKS, MAX_RANKS = 2, 64

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class NetworkMeasured:
    """What measuring a network did."""

    network: NetworkFingerprint
    target: Target
    done: CollectivesMeasured


def collectives_settings(backend: str) -> tuple[WorkerSettings, str]:
    """Settings of workers that are ranks over ``backend``, and the version of what it comes with.

    Raises :class:`UsageError` for an unknown backend, and :class:`BackendError` for one that cannot
    be used here.
    """
    info = _offering(backend).for_ranks(backend)
    return WorkerSettings(info.name, 1, 0, python=info.python), info.version


def _offering(backend: str) -> Offer:
    """The runtime with this backend of collectives."""
    found = {each: offer for offer in backends.offers() for each in offer.collectives}
    if backend not in found:
        raise UsageError(f"no backend is called {backend!r}: {suggestion(backend, found)}")
    return found[backend]


@contextmanager
def local_places(
    ranks: int, bandwidth_bps: float | None, *, shaped: bool
) -> Iterator[Sequence[RankPlace]]:
    """Places for ranks on this host: on loopback, or ``shaped``, in network namespaces.

    There, each sends at ``bandwidth_bps`` bits a second; None: as fast as the host can.
    """
    if not shaped:
        yield loopback(ranks)
        return
    rate = None if bandwidth_bps is None else round(bandwidth_bps)
    with namespaces(ranks, rate) as places:
        yield places


@contextmanager
def places_of(network: MeasuredNetwork, ranks: int) -> Iterator[Sequence[RankPlace]]:
    """Places for ranks on this host that are joined as by ``network``, while it lasts.

    Raises :class:`UsageError` for a network between hosts, which cannot be set up on one.
    """
    identity = network.fingerprint["identity"]
    kind = identity["kind"]
    if not identity["same_host"] or kind not in ("loopback", "veth"):
        raise UsageError(
            f"network {network.name} is between hosts and cannot be set up on this one: choose one"
            " of 'bricks network measure --loopback' or '--bandwidth'"
        )
    with local_places(ranks, identity["rate_bps"], shaped=kind == "veth") as places:
        yield places


def measure_locally(
    store: Store,
    name: str,
    *,
    ranks: int = 2,
    backend: str = "gloo",
    shaped: bool = False,
    bandwidth_bps: float | None = None,
    operations: Sequence[str] = OPERATIONS,
    sizes: Sequence[int] = SIZES,
    computing: bool = False,
    again: bool = False,
    progress: Progress = lambda what, share: None,
) -> NetworkMeasured:
    """Measure collectives between ranks on this host, as the network ``name``.

    See :func:`local_places`, and :func:`measure_on` for the errors.
    """
    refuse(name, ranks, operations, sizes)
    settings, version = collectives_settings(backend)
    with (
        local_places(ranks, bandwidth_bps, shaped=shaped) as places,
        LocalRanks(settings, places) as workers,
    ):
        requests = [ReadInterface(place.interface) for place in places]
        facts = workers.ask_each(requests, timeout_s=_TIMEOUT_S)
        system = store.systems.named(fingerprint())
        return measure_on(
            store, workers, _on_this_host(name, facts, system), system, f"{backend} {version}",
            operations=operations, sizes=sizes, computing=computing, again=again,
            progress=progress,
        )  # fmt: skip


def _on_this_host(
    name: str, facts: Sequence[Mapping[str, Any]], system: System
) -> NetworkFingerprint:
    """The network between ranks here; ``facts`` are of the interface of each."""
    ranks = len(facts)
    cores = min(1.0, len(logical_cpus()) / ranks)
    return network_of(name, facts, [system] * ranks, same_host=True, cores_per_rank=cores)


# Gradients in one message are rarely larger; what is, is extrapolated.
CHECKED_SIZES = SIZES[:-1]


def loopback_network(
    store: Store,
    ranks: int,
    operations: Sequence[str],
    *,
    backend: str = "gloo",
    sizes: Sequence[int] = CHECKED_SIZES,
    announce: Callable[[str], None] = lambda name: None,
    progress: Progress = lambda what, share: None,
) -> MeasuredNetwork:
    """This host's loopback between ``ranks``: ``operations`` on it, alone and beside computing.

    What is known of it under any name is not measured again. Before anything is measured,
    ``announce`` is called with the network's name. Raises the errors of :func:`measure_on`.
    """
    refuse("loopback", ranks, operations, sizes)
    version = collectives_settings(backend)[1]
    system = store.systems.named(fingerprint())
    facts = [interface_facts(place.interface) for place in loopback(ranks)]
    network = _called_as_known(store, _on_this_host("loopback", facts, system), ranks)
    target = _target(network, system, f"{backend} {version}")
    keys = [key for of in _wanted(operations, sizes, ranks) for key in _aspects(of)]
    if set(keys) - store.measurements.settled(target.key, keys):
        announce(network.name)
        measure_locally(
            store, network.name, ranks=ranks, backend=backend, operations=operations, sizes=sizes,
            computing=True, progress=progress,
        )  # fmt: skip
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
    """The keys of what is measured of a collective, alone and beside computing."""
    return [replace(of, aspect=aspect).key for aspect in (Aspect.ALONE, *BESIDE)]


def network_of(
    name: str,
    facts: Sequence[Mapping[str, Any]],
    systems: Sequence[System],
    *,
    same_host: bool,
    cores_per_rank: float,
) -> NetworkFingerprint:
    """The fingerprint of what ranks are joined by: ``facts`` of each one's interface, in order."""
    first = facts[0]
    unlike = [each for each in facts if _decisive(each) != _decisive(first)]
    if unlike:
        raise UsageError(
            f"the interfaces of the ranks differ ({_decisive(first)} and {_decisive(unlike[0])}):"
            " measure between hosts whose interfaces are alike"
        )
    identity = {
        **_decisive(first),
        "systems": sorted({system.key for system in systems}),
        "same_host": same_host,
        "cores_per_rank": cores_per_rank,
    }
    return NetworkFingerprint(name, identity, {"speed_mbps": first.get("speed_mbps")})


def _decisive(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts.get(name) for name in ("kind", "mtu", "rate_bps")}


def measure_on(
    store: Store,
    ranks: Ranks,
    network: NetworkFingerprint,
    system: System,
    backend: str,
    *,
    operations: Sequence[str],
    sizes: Sequence[int],
    computing: bool,
    progress: Progress,
    again: bool = False,
) -> NetworkMeasured:
    """Measure what the cache lacks of collectives between ``ranks``.

    With ``again``, also further rounds of what it has. ``backend`` is its name and version;
    ``system`` is that of the first rank. Raises
    :class:`UsageError` if the name is that of another network, or the network has another name, and
    :class:`~bricks.errors.WorkerError` if a rank fails: all rounds until then are kept.
    """
    _refuse_other_name(store, network)
    target = _target(network, system, backend)
    store.systems.save_network(network)
    store.systems.save_target(target)
    wanted = _wanted(operations, sizes, ranks.count)
    exclusive = _offering(target.runtime.backend).computes
    campaign = CollectiveCampaign(store, ranks, target.key, progress, exclusive=exclusive)
    done = campaign.run(wanted, computing=computing, again=again)
    return NetworkMeasured(network, target, done)


def _target(network: NetworkFingerprint, system: System, backend: str) -> Target:
    """The target of collectives; ``backend`` is its name and version."""
    named, version = backend.split()
    return Target(system, Runtime(named, version, "CPU", 1, "none", network=network.key))


def _wanted(operations: Sequence[str], sizes: Sequence[int], ranks: int) -> list[Collective]:
    named = map(operation_of, operations)
    return [Collective(operation, size, ranks) for operation in named for size in sizes]


def _refuse_other_name(store: Store, network: NetworkFingerprint) -> None:
    for known, _ in store.systems.network_targets():
        if known.name == network.name and known.key != network.key:
            told = ", ".join(
                f"{fact} {there} there and {here} here"
                for fact, (there, here) in known.differences(network).items()
            )
            raise UsageError(
                f"another network is called {network.name!r} ({told}): give another name"
            )
        if known.key == network.key and known.name != network.name:
            raise UsageError(
                f"this network is known as {known.name!r}: run 'bricks network measure"
                f" {known.name}' with the same options, which measures what is missing, and with"
                " --again further rounds of all"
            )


def refuse(name: str, ranks: int, operations: Sequence[str], sizes: Sequence[int]) -> None:
    """:class:`UsageError` for what cannot be measured."""
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} is no name: give one of printable characters")
    if not MIN_RANKS <= ranks <= MAX_RANKS:
        raise UsageError(f"{ranks} ranks cannot communicate: give {MIN_RANKS} to {MAX_RANKS}")
    for operation in operations:
        operation_of(operation)
    if not sizes or min(sizes) < 1:
        raise UsageError("there is no size to measure: give larger ones")


def measured_networks(store: Store) -> list[MeasuredNetwork]:
    """All networks of the cache, one for each version of a backend, by name."""
    found = []
    for network, target in store.systems.network_targets():
        facts = {
            **network.to_json(),
            "target": target.key,
            "backend": target.runtime.backend,
            "version": target.runtime.version,
        }
        found.append(MeasuredNetwork(network.name, facts, known_collectives(store, target.key)))
    return found


def network_called(store: Store, name: str) -> MeasuredNetwork:
    """The network with this name or key, as its newest backend was measured.

    Raises :class:`UsageError` if there is none, or nothing is measured on it.
    """
    every = measured_networks(store)
    found = [each for each in every if name in (each.name, each.fingerprint["key"])]
    known = sorted({each.name for each in every})
    if not found:
        meant = suggestion(name, known, "known are") if known else "none is known yet"
        raise UsageError(
            f"no network is called {name!r}: {meant}; 'bricks network measure {name}' makes it"
            " known"
        )
    found = [each for each in found if each.samples]
    if not found:
        raise UsageError(
            f"nothing is measured on network {name!r} yet: run 'bricks network measure {name}'"
        )
    return max(found, key=lambda each: _numbers(each.fingerprint["version"]))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split("+")[0].split(".") if part.isdecimal()]
