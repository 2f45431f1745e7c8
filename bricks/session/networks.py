"""Networks of a cache: measure one under a name, list them, and load one to predict with.

Here because a network is measured into a cache as bricks are, by the backends of this host. Must
not know how ranks of other hosts are reached, nor how anything is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bricks import backends
from bricks.errors import BackendError, UsageError, suggestion
from bricks.measure.campaign import Progress
from bricks.measure.collectives import CollectiveCampaign, CollectivesMeasured, known_collectives
from bricks.measure.namespaces import namespaces
from bricks.measure.ranks import LocalRanks, RankPlace, Ranks, loopback
from bricks.measure.supervisor import WorkerSettings
from bricks.network.collective import OPERATIONS, Collective
from bricks.network.times import MeasuredNetwork
from bricks.store import Store
from bricks.system import Runtime, System, Target, fingerprint, logical_cpus
from bricks.system.network import NetworkFingerprint

# Powers of four, from the gradients of one layer to those of a large model.
SIZES = tuple(1024 * 4**power for power in range(10))

MIN_RANKS, MAX_RANKS = 2, 64

# The runtimes whose environments have the backends of collectives.
RUNTIMES = {"gloo": "torch", "nccl": "torch", "fake": "fake"}

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
    if backend not in RUNTIMES:
        raise UsageError(f"no backend is called {backend!r}: {suggestion(backend, RUNTIMES)}")
    if backend == "nccl":
        _refuse_without_gpu()
    info = backends.describe(RUNTIMES[backend])
    return WorkerSettings(info.name, 1, 0, python=info.python), info.version


def _refuse_without_gpu() -> None:
    if not Path("/dev/nvidia0").exists():
        raise BackendError("nccl needs a GPU, and this host has none: choose --backend gloo")
    raise BackendError(
        "nccl needs a build of PyTorch for GPUs, and the one of 'bricks backends install torch' is"
        " for processors: choose --backend gloo"
    )


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
        facts = workers.ask_each(
            "interface", [{"name": place.interface} for place in places], timeout_s=_TIMEOUT_S
        )
        system = store.named(fingerprint())
        network = network_of(
            name, facts, [system] * ranks,
            same_host=True, cores_per_rank=min(1.0, len(logical_cpus()) / ranks),
        )  # fmt: skip
        return measure_on(
            store, workers, network, system, f"{backend} {version}", operations=operations,
            sizes=sizes, computing=computing, progress=progress,
        )  # fmt: skip


def network_of(
    name: str,
    facts: Sequence[dict[str, Any]],
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


def _decisive(facts: dict[str, Any]) -> dict[str, Any]:
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
) -> NetworkMeasured:
    """Measure what the cache lacks of collectives between ``ranks``.

    ``backend`` is its name and version; ``system`` is that of the first rank. Raises
    :class:`UsageError` if the name is that of another network, or the network has another name, and
    :class:`~bricks.errors.WorkerError` if a rank fails: all rounds until then are kept.
    """
    _refuse_other_name(store, network)
    named, version = backend.split()
    runtime = Runtime(named, version, "CPU", 1, "none", network=network.key)
    target = Target(system, runtime)
    store.save_network(network)
    store.save_target(target)
    wanted = [
        Collective(operation, num_bytes, ranks.count)
        for operation in operations
        for num_bytes in sizes
    ]
    campaign = CollectiveCampaign(store, ranks, target.key, progress, exclusive=named != "fake")
    return NetworkMeasured(network, target, campaign.run(wanted, computing=computing))


def _refuse_other_name(store: Store, network: NetworkFingerprint) -> None:
    for known, _ in store.network_targets():
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
                f" {known.name}'"
            )


def refuse(name: str, ranks: int, operations: Sequence[str], sizes: Sequence[int]) -> None:
    """:class:`UsageError` for what cannot be measured."""
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} is no name: give one of printable characters")
    if not MIN_RANKS <= ranks <= MAX_RANKS:
        raise UsageError(f"{ranks} ranks cannot communicate: give {MIN_RANKS} to {MAX_RANKS}")
    for operation in operations:
        if operation not in OPERATIONS:
            meant = suggestion(operation, OPERATIONS)
            raise UsageError(f"there is no collective {operation!r}: {meant}")
    if not sizes or min(sizes) < 1:
        raise UsageError("there is no size to measure: give larger ones")


def measured_networks(store: Store) -> list[MeasuredNetwork]:
    """All networks of the cache, one for each version of a backend, by name."""
    found = []
    for network, target in store.network_targets():
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
