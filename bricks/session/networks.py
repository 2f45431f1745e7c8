"""Networks measured into a cache, between ranks on this host or on several.

Here because collectives are measured into a cache as bricks are. Must not know how ranks are
reached, nor how anything is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks import backends
from bricks.errors import UsageError, suggestion
from bricks.measure.collectives import CollectiveCampaign, CollectivesMeasured
from bricks.measure.supervisor import WorkerSettings
from bricks.network.collective import OPERATIONS, Collective, operation_of
from bricks.system import Runtime, System, Target
from bricks.system.network import NetworkFingerprint

if TYPE_CHECKING:
    from bricks.backends import Offer
    from bricks.measure.progress import Progress
    from bricks.measure.ranks import Ranks
    from bricks.store import Store
    from bricks.system.interface import InterfaceFacts

# Powers of four, from the gradients of one layer to those of a large model.
SIZES = tuple(1024 * 4**power for power in range(10))

# Gradients in one message are rarely larger; what is, is extrapolated.
CHECKED_SIZES = SIZES[:-1]

MIN_RANKS, MAX_RANKS = 2, 64


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
    """The offer of the runtime with this collective backend."""
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
    _refuse_other_name(store, network)
    store.systems.save_network(network)
    store.systems.save_target(target)
    exclusive = _offering(target.runtime.backend).computes
    campaign = CollectiveCampaign(store, ranks, target.key, progress, exclusive=exclusive)
    done = campaign.run(request.collectives, computing=request.computing, again=request.again)
    return NetworkMeasured(network, target, done)


def _refuse_other_name(store: Store, network: NetworkFingerprint) -> None:
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
