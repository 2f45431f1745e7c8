"""The ranks of one job: a worker for each, which all get the same requests at once.

If a rank dies, hangs or fails, the others wait for it in vain: all are ended, and the error names
the rank that was the cause.

Ranks on this host may run in network namespaces, each with one interface, connected by a switch:
they communicate as if over a network, whose bandwidth the kernel shapes: packets that an interface
sends pass a token bucket (tbf). Names of namespaces have the number of the process that made them;
the next process removes namespaces of an ended one. Needs root and Linux. Must not know the meaning
of requests.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bricks.closing import Closing
from bricks.errors import WorkerError, first_line
from bricks.measure.protocol.training import JoinGroup, OpenGroup
from bricks.measure.protocol.walking import TimeKernels
from bricks.measure.supervisor import Supervisor, WorkerDied, WorkerSettings
from bricks.store import Owner, alive
from bricks.system import logical_cpus

if TYPE_CHECKING:
    from bricks.measure.protocol.request import Answer, Request
    from bricks.system.host_conditions import HostConditions

# The longest time in which ranks find each other.
JOIN_TIMEOUT_S = 60.0

# Seconds that other ranks have to fail after the first failure: the cause may be among them, and a
# busy host takes seconds to notice that a process has ended.
_GRACE_S = 10.0

# Where ``ip netns`` keeps names.
FOLDER = Path("/run/netns")

_PREFIX = "bricks"
_NAME = re.compile(rf"{_PREFIX}-([0-9]+)-([0-9]+)-[a-z0-9]+")

_INTERFACE, _SUBNET, _MAX_RANKS = "eth0", "10.213.0", 200

# The bucket has the bytes of this time at the rate, and no fewer than the kernel passes on in one
# piece: with smaller buckets it splits such pieces, and does not reach the rate.
_BURST_S, _MIN_BURST_BYTES = 2e-4, 72 << 10
# The longest queue, as in switches.
QUEUE = "100ms"

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class RankLocation:
    """The location of a rank: its ``cores``, and the address of its network interface.

    ``prefix`` is a command that runs the worker's command there, such as in a network namespace.
    """

    address: str
    interface: str
    cores: tuple[int, ...]
    prefix: tuple[str, ...] = ()


class Ranks(Protocol):
    """Ranks that answer requests, on this host or on others."""

    count: int

    def ask(self, request: Request[Answer], *, timeout_s: float) -> list[Answer]:
        """The answer of each rank, in order; :class:`WorkerError` names a rank that fails."""

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Let the ranks form a group, so that they can communicate."""

    def host_conditions(self, timeout_s: float) -> HostConditions | None:
        """The conditions of the host now; None if reference kernels are not run."""


def cores_of(ranks: int) -> list[tuple[int, ...]]:
    """A core for each rank; if there are fewer cores than ranks, ranks share them."""
    cores = logical_cpus()
    return [(cores[rank % len(cores)],) for rank in range(ranks)]


def loopback(ranks: int) -> list[RankLocation]:
    """Locations of ranks that communicate over this host's loopback interface."""
    return [RankLocation("127.0.0.1", "lo", cores) for cores in cores_of(ranks)]


class LocalRanks(Closing):
    """Ranks on this host, one at each of ``locations``; a context manager.

    ``launchers`` are commands that each start the worker of a rank, and pass it the rendezvous;
    without launchers, the rendezvous is a port that the first rank opens.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        locations: Sequence[RankLocation],
        *,
        launchers: Sequence[Sequence[str]] = (),
    ) -> None:
        self.count = len(locations)
        self._places = locations
        self._launched = bool(launchers)
        commands = launchers or [settings.start_command] * self.count
        self._workers = [
            Supervisor(replace(settings, command=(*location.prefix, *command)))
            for location, command in zip(locations, commands, strict=True)
        ]
        self._pool = ThreadPoolExecutor(self.count)
        self._joined = False
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """End all ranks."""
        for worker in self._workers:
            worker.close()
        self._pool.shutdown()

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """See :class:`Ranks`; ranks that have ended are started again."""
        if self._joined:
            self._end()
        for worker in self._workers:
            worker.start()
        self._joined = True
        first, port = self._places[0], 0
        if not self._launched:
            port = self._ask_first(OpenGroup(first.address, timeout_s), timeout_s)
        self.ask_each(
            [
                JoinGroup(
                    rank,
                    self.count,
                    first.address,
                    port,
                    location.interface,
                    location.cores,
                    timeout_s,
                )
                for rank, location in enumerate(self._places)
            ],
            timeout_s=2 * timeout_s,
        )

    def host_conditions(self, timeout_s: float) -> HostConditions | None:
        """See :class:`Ranks`: the first rank runs the kernels."""
        return self._ask_first(TimeKernels(), timeout_s)[-1]

    def _ask_first(self, request: Request[Answer], timeout_s: float) -> Answer:
        try:
            return self._workers[0].ask_running(request, timeout_s=timeout_s)
        except WorkerError as error:
            self._end()
            raise type(error)(f"rank 0 of {self.count}: {error}") from error

    def ask(self, request: Request[Answer], *, timeout_s: float) -> list[Answer]:
        """See :class:`Ranks`."""
        return self.ask_each([request] * self.count, timeout_s=timeout_s)

    def ask_each(self, requests: Sequence[Request[Answer]], *, timeout_s: float) -> list[Answer]:
        """As :meth:`ask`, with a request of its own for each rank."""
        asked = [
            self._pool.submit(worker.ask_running, request, timeout_s=timeout_s)
            for worker, request in zip(self._workers, requests, strict=True)
        ]
        try:
            wait(asked, return_when=FIRST_EXCEPTION)
            if _errors(asked):
                _wait_for_a_death(asked)
                # The error of the rank that was the cause, preferably of one that died.
                failed = _errors(asked)
                rank = min(failed, key=lambda rank: not isinstance(failed[rank], WorkerDied))
                kind = WorkerDied if isinstance(failed[rank], WorkerDied) else WorkerError
                raise kind(f"rank {rank} of {self.count}: {failed[rank]}")
            return [future.result() for future in asked]
        except BaseException:
            for worker in self._workers:
                worker.kill()
            wait(asked)
            self._end()
            raise

    def _end(self) -> None:
        for worker in self._workers:
            worker.reset()


def _errors(asked: Sequence[Future[Any]]) -> dict[int, BaseException]:
    return {
        rank: error
        for rank, future in enumerate(asked)
        if future.done() and (error := future.exception()) is not None
    }


def _wait_for_a_death(asked: Sequence[Future[Any]]) -> None:
    """Wait a while for a rank that died, after another rank reported that it lost a peer."""
    deadline = time.monotonic() + _GRACE_S
    working = [future for future in asked if not future.done()]
    while working and not any(isinstance(e, WorkerDied) for e in _errors(asked).values()):
        if (left_s := deadline - time.monotonic()) <= 0:
            return
        wait(working, left_s, return_when=FIRST_COMPLETED)
        working = [future for future in working if not future.done()]


def refuse_without_namespaces() -> None:
    """:class:`WorkerError` with the reason if there can be no namespaces here."""
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        raise WorkerError(
            f"there is no program {missing[0]!r} to make network namespaces with: install iproute2,"
            " or measure on loopback"
        )
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise WorkerError("network namespaces need root: run as root, or measure on loopback")


@contextmanager
def namespaces(ranks: int, rate_bps: int | None) -> Iterator[list[RankLocation]]:
    """Locations of ranks, each in a namespace of its own, which exists until the block ends.

    ``rate_bps`` is the rate in bits a second at which each can send; None: as fast as the host is.
    Raises :class:`WorkerError` where there can be no namespaces.
    """
    refuse_without_namespaces()
    if ranks > _MAX_RANKS:
        raise WorkerError(f"{ranks} ranks are too many for one host: give at most {_MAX_RANKS}")
    remove_stale()
    names = [_name(str(rank)) for rank in range(ranks)]
    switch = _name("switch")
    try:
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "switch", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            _run("ip", "netns", "add", name)
            _run(
                "ip", "-n", switch, "link", "add", port,
                "type", "veth", "peer", _INTERFACE, "netns", name,
            )  # fmt: skip
            _run("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
            _run("ip", "-n", name, "address", "add", f"{_SUBNET}.{rank + 1}/24", "dev", _INTERFACE)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "link", "set", _INTERFACE, "up")
            if rate_bps is not None:
                burst = max(_MIN_BURST_BYTES, int(rate_bps / 8 * _BURST_S))
                _run(
                    "tc", "-n", name, "qdisc", "add", "dev", _INTERFACE, "root", "tbf",
                    "rate", f"{rate_bps}bit", "burst", str(burst), "latency", QUEUE,
                )  # fmt: skip
        yield [
            RankLocation(f"{_SUBNET}.{rank + 1}", _INTERFACE, cores, ("ip", "netns", "exec", name))
            for rank, (name, cores) in enumerate(zip(names, cores_of(ranks), strict=True))
        ]
    finally:
        for name in (*names, switch):
            _remove(name)


def remove_stale() -> list[str]:
    """Remove namespaces of ended processes, and end processes in them; returns their names."""
    removed = []
    for path in sorted(FOLDER.glob(f"{_PREFIX}-*")) if FOLDER.is_dir() else ():
        parts = _NAME.fullmatch(path.name)
        if parts is None:
            continue
        owner = Owner(Owner.current().host, int(parts[1]), float(parts[2]), "")
        if not alive(owner):
            _remove(path.name)
            removed.append(path.name)
    return removed


def _name(part: str) -> str:
    me = Owner.current()
    return f"{_PREFIX}-{me.pid}-{int(me.started_s)}-{part}"


def _remove(name: str) -> None:
    """Remove a namespace, if it exists, and end the processes that still run in it."""
    with suppress(OSError, subprocess.TimeoutExpired, ValueError):
        listed = subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        for pid in map(int, listed.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=_TIMEOUT_S)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise WorkerError(f"'{' '.join(command)}' cannot be run: {first_line(exc)}") from exc
    if done.returncode:
        said = first_line(Exception(done.stderr or done.stdout))
        raise WorkerError(
            f"a network namespace cannot be made ('{' '.join(command)}': {said}): measure on"
            " loopback"
        )
