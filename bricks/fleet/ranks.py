"""Ranks on hosts of the fleet, and the network between them, measured into the coordinator's cache.

Each host runs one rank, which answers requests: ``RankHosts`` is the coordinator's side,
``start``, ``ask`` and ``end`` are what it calls on a host. Must not know how hosts are reached
(:class:`~bricks.fleet.coordinator.Cluster`), or how a rank is timed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bricks._version import __version__
from bricks.closing import Closing
from bricks.errors import FleetError, WorkerError, first_line
from bricks.measure.protocol.training import JoinGroup, OpenGroup, ReadInterface
from bricks.measure.ranks import JOIN_TIMEOUT_S
from bricks.measure.supervisor import Supervisor
from bricks.session.networks import (
    NetworkMeasured,
    NetworkRequest,
    collectives_settings,
    collectives_target,
    measure_on,
    network_of,
)
from bricks.store.owners import host_id
from bricks.system import System, fingerprint, logical_cpus
from bricks.system.interface import interface_of

if TYPE_CHECKING:
    from bricks.fleet.coordinator import Cluster, RemoteCall
    from bricks.measure.campaign_result import Progress
    from bricks.measure.protocol.request import Answer, Request
    from bricks.store import Store
    from bricks.system.host_conditions import HostConditions

_POLL_S = 0.002

# A host looks for this long beyond the time that a request may take, then counts as lost.
_LOST_S = 30.0

_supervisors: dict[str, Supervisor] = {}
_TIMEOUT_S = 60.0


def start(request: str, backend: str, address: str) -> dict[str, Any]:
    """Start the worker of a rank here; returns facts of this host, whose IP is ``address``."""
    settings, version = collectives_settings(backend)
    end(request)
    _supervisors[request] = Supervisor(settings)
    _supervisors[request].start()
    return {
        "package": __version__,
        "version": version,
        "system": fingerprint(),
        "host": host_id(),
        "cores": logical_cpus(),
        "interface": interface_of(address),
    }


def ask(rank: str, request: Request[Answer], timeout_s: float) -> Answer:
    """The answer of the worker of a rank on this host."""
    if rank not in _supervisors:
        raise FleetError("the host has forgotten its rank: it was started again meanwhile")
    return _supervisors[rank].ask_running(request, timeout_s=timeout_s)


def end(request: str) -> None:
    """End the rank's worker here, if there is one."""
    known = _supervisors.pop(request, None)
    if known is not None:
        known.close()


class RankHosts(Closing):
    """A rank on each of ``ranks`` hosts of ``cluster``; a context manager.

    Raises FleetError where fewer hosts have joined, or one cannot take part.
    """

    def __init__(self, cluster: Cluster, ranks: int, backend: str) -> None:
        self.count = ranks
        self._cluster = cluster
        self._request = uuid.uuid4().hex
        hosts = cluster.hosts()
        if len(hosts) < ranks:
            raise FleetError(
                f"{len(hosts)} hosts have joined, and {ranks} ranks need one each: start 'bricks"
                " worker' on more, or give fewer --ranks"
            )
        self._addresses = sorted(hosts)[:ranks]
        self._names = [hosts[address].name for address in self._addresses]
        self.facts = self._call_each(
            start, [(self._own(rank), backend, self.ip(rank)) for rank in range(ranks)], 120.0
        )
        for rank, facts in enumerate(self.facts):
            name = self._names[rank]
            if facts["package"] != __version__:
                self._fail(f"{name} runs bricks {facts['package']}, and not {__version__}")
            if facts["version"] != self.facts[0]["version"]:
                self._fail(f"{name} has version {facts['version']} of the backend, others not")
            if facts["interface"] is None:
                self._fail(f"{name} has no interface with the address {self.ip(rank)}")

    def close(self) -> None:
        """End the ranks, as soon as their hosts are free."""
        for rank, address in enumerate(self._addresses):
            self._cluster.notify(address, end, self._own(rank))

    def ip(self, rank: int) -> str:
        """The address at which others reach a rank's host."""
        return self._addresses[rank].rpartition("://")[2].rpartition(":")[0].strip("[]")

    @property
    def systems(self) -> list[System]:
        """The system of each rank's host."""
        return [facts["system"] for facts in self.facts]

    @property
    def same_host(self) -> bool:
        """Whether all ranks are on one host."""
        return len({facts["host"] for facts in self.facts}) == 1

    @property
    def cores_per_rank(self) -> float:
        """The cores that a rank has on the host with the most ranks for its cores."""
        hosts = [facts["host"] for facts in self.facts]
        return min(
            min(1.0, len(facts["cores"]) / hosts.count(facts["host"])) for facts in self.facts
        )

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """See :class:`~bricks.measure.ranks.Ranks`."""
        [port] = self._call_each(
            ask, [(self._own(0), OpenGroup(self.ip(0), timeout_s), timeout_s)], timeout_s
        )
        self.ask_each(
            [
                JoinGroup(
                    rank, self.count, self.ip(0), port, facts["interface"], (self._core(rank),),
                    timeout_s,
                )
                for rank, facts in enumerate(self.facts)
            ],
            timeout_s=2 * timeout_s,
        )  # fmt: skip

    def host_conditions(self, timeout_s: float) -> HostConditions | None:
        """None: a call to one host takes longer than the timed collectives."""
        return None

    def ask(self, request: Request[Answer], *, timeout_s: float) -> list[Answer]:
        """See :class:`~bricks.measure.ranks.Ranks`."""
        return self.ask_each([request] * self.count, timeout_s=timeout_s)

    def ask_each(self, requests: Sequence[Request[Answer]], *, timeout_s: float) -> list[Answer]:
        """As :meth:`ask`, with a request of its own for each rank."""
        arguments = [(self._own(rank), own, timeout_s) for rank, own in enumerate(requests)]
        return self._call_each(ask, arguments, timeout_s)

    def _own(self, rank: int) -> str:
        return f"{self._request}-{rank}"

    def _core(self, rank: int) -> int:
        """The core of a rank; the ranks of a host get its cores in turn."""
        hosts = [facts["host"] for facts in self.facts]
        before = hosts[:rank].count(hosts[rank])
        cores = self.facts[rank]["cores"]
        return int(cores[before % len(cores)])

    def _fail(self, why: str) -> None:
        self.close()
        raise FleetError(f"{why}: let the hosts of the fleet be alike")

    def _call_each(
        self, function: Any, arguments: Sequence[tuple[Any, ...]], timeout_s: float
    ) -> list[Any]:
        """Call a function on the first hosts, one for each of ``arguments``, all at once."""
        calls: list[RemoteCall] = [
            self._cluster.call(address, function, *own)
            for address, own in zip(self._addresses, arguments, strict=False)
        ]
        deadline = time.monotonic() + timeout_s + _LOST_S
        answers: dict[int, Any] = {}
        try:
            while len(answers) < len(calls):
                for rank, call in enumerate(calls):
                    if rank not in answers and call.done():
                        try:
                            answers[rank] = call.result()
                        except Exception as exc:  # of any kind: it comes from another host
                            raise WorkerError(f"{self._title(rank)}: {first_line(exc)}") from exc
                late = [rank for rank in range(len(calls)) if rank not in answers]
                if late and (time.monotonic() > deadline or not self._present(len(calls))):
                    raise WorkerError(f"{self._title(late[0])} has left, or answers no more")
                time.sleep(_POLL_S)
        except BaseException:
            for call in calls:
                call.cancel()
            self.close()
            raise
        return [answers[rank] for rank in range(len(calls))]

    def _present(self, count: int) -> bool:
        there = self._cluster.hosts()
        return all(address in there for address in self._addresses[:count])

    def _title(self, rank: int) -> str:
        return f"rank {rank} of {self.count} ({self._names[rank]})"


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
