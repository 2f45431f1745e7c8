"""Distributes the bricks of some models among hosts, and merges what they measure into a store.

Every distinct target measures each brick once; hosts that are the same target share its work, batch
by batch. A scheduler reports its hosts and the time of each one's last heartbeat; from that follows
which hosts have joined and which are lost. A host that dies, hangs or becomes another system loses
its batch to others; a host that joins late gets what is left. A host's results are merged as a file
from anybody is: what they say is checked, and refused where it cannot be true. Must not know Dask
(:class:`Cluster` stands for it) or how bricks are measured.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bricks._version import __version__
from bricks.errors import FleetError, StoreError, first_line
from bricks.fleet import host as on_host
from bricks.fleet.host import BatchResult, ModelPayload
from bricks.fleet.report import FleetMeasured, HostReport
from bricks.fleet.work import FleetWork
from bricks.samples.measurement import Sampling, combined

if TYPE_CHECKING:
    from bricks.fleet.work import KeyBatch, WorkQueue
    from bricks.graph.model import Model
    from bricks.measure.campaign_result import Progress
    from bricks.session.options import Options
    from bricks.store import Store
    from bricks.system import Target

_POLL_S = 0.1


class Coordinator:
    """One request to measure ``models`` on all hosts of ``cluster``, into ``store``.

    A host without a sign of life for ``patience_s`` seconds counts as gone; the coordinator waits
    as long for hosts to join when there is none that could go on. ``note`` is called with one line
    for each host that joins, changes or leaves.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        models: Sequence[Model],
        options: Options,
        *,
        patience_s: float = 60.0,
        progress: Progress = lambda what, share: None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._cluster = cluster
        distinct = list({model.digest: model for model in models}.values())
        self._work = FleetWork(store, distinct, options)
        self._payloads = [ModelPayload.of(model) for model in distinct]
        self._options = options
        self._patience_s = patience_s
        self._progress = progress
        self._note = note
        self._request = uuid.uuid4().hex
        self._hosts = HostList(patience_s)

    def run(self) -> FleetMeasured:
        """Measure until all bricks of every joined target are measured, or no host is left.

        Raises FleetError if no host could measure anything, or the scheduler has gone.
        """
        started = time.perf_counter()
        active_s = time.monotonic()
        try:
            while True:
                seen = self._cluster.hosts()
                for host, why in self._hosts.lost(seen):
                    self._drop(host, why)
                for host in self._hosts.joined(seen):
                    host.call = self._cluster.call(host.address, on_host.greet)
                for host in list(self._hosts.present.values()):
                    self._advance(host)
                self._show_progress()
                busy = any(
                    host.call is not None or self._batches_for(host)
                    for host in self._hosts.present.values()
                )
                if self._work.done and not busy:
                    break
                if busy:
                    active_s = time.monotonic()
                elif time.monotonic() - active_s > self._patience_s:
                    self._refuse_if_none_measured()
                    break
                time.sleep(_POLL_S)
        finally:
            for host in self._hosts.present.values():
                host.cancel()
                self._cluster.notify(host.address, on_host.finish, self._request)
        return FleetMeasured(
            self._work.reports(),
            self._hosts.reports(),
            time.perf_counter() - started,
        )

    def _batches_for(self, host: FleetHost) -> bool:
        """Whether a host is idle while batches of its target are waiting."""
        if host.phase is not HostPhase.IDLE or host.target is None:
            return False
        return bool(self._queue_of(host).batches)

    def _queue_of(self, host: FleetHost) -> WorkQueue:
        assert host.target is not None
        return self._work.of(host.target)

    def _refuse_if_none_measured(self) -> None:
        if self._work.begun:
            return
        refused = [f"{host.name}: {host.left}" for host in self._hosts.gone]
        raise FleetError(
            f"no host can measure: {'; '.join(refused)}"
            if refused
            else "no host has joined: start 'bricks worker' with the scheduler's address on each"
        )

    # Hosts

    def _drop(self, host: FleetHost, why: str, *, refused: bool = False) -> None:
        """Go on without a host, and let another measure its batch.

        A host that is ``refused`` stays out; one that was silent may join again.
        """
        host.cancel()
        if host.phase is HostPhase.MEASURING:
            self._put_back(host, f"{host.name} {why}")
        self._hosts.remove(host, why, refused=refused)
        if refused:
            self._cluster.notify(host.address, on_host.finish, self._request)
        self._note(f"{host.name} {why}")

    def _advance(self, host: FleetHost) -> None:
        """Take the result of a host's call, if it has ended, and give the host its next batch."""
        if host.call is not None:
            if not host.call.done():
                return
            call, host.call = host.call, None
            try:
                result = call.result()
            except Exception as exc:  # of any kind: it comes from another host
                self._handle_error(host, exc)
            else:
                self._handle_result(host, result)
        if self._batches_for(host):
            host.batch, host.phase = self._queue_of(host).take(), HostPhase.MEASURING
            host.call = self._cluster.call(host.address, on_host.measure, self._request, host.batch)

    def _handle_error(self, host: FleetHost, exc: Exception) -> None:
        line = first_line(exc)
        if isinstance(exc, FleetError) and host.phase is HostPhase.MEASURING:
            self._put_back(host, line, blame=False)
            self._prepare(host)
        elif host.phase is HostPhase.MEASURING:
            self._put_back(host, f"{host.name}: {line}")
            host.phase = HostPhase.IDLE
        else:
            self._drop(host, f"cannot measure: {line}", refused=True)

    def _handle_result(self, host: FleetHost, result: Any) -> None:
        if host.phase is HostPhase.GREETING:
            version = result["package"]
            if version != __version__:
                reason = f"runs bricks {version}, and not {__version__}: update one"
                self._drop(host, reason, refused=True)
                return
            self._prepare(host)
        elif host.phase is HostPhase.PREPARING:
            try:
                self._work.join(result)
            except StoreError as exc:
                self._drop(host, f"cannot measure: {exc}", refused=True)
            else:
                host.target, host.phase = result.target, HostPhase.IDLE
                self._note(f"{host.name} has joined: {result.target.system.name}")
        else:
            self._handle_batch(host, result)

    def _prepare(self, host: FleetHost) -> None:
        host.phase = HostPhase.PREPARING
        host.call = self._cluster.call(
            host.address, on_host.prepare, self._request, self._options, self._payloads
        )

    def _handle_batch(self, host: FleetHost, result: BatchResult) -> None:
        """Merge what a host measured, unless it is another system now."""
        assert host.target is not None
        differ = host.target.system.differences(result.system)
        if result.system.key != host.target.system.key:
            # Which of the two systems had these latencies cannot be known.
            line = _changes(differ["identity"])
            host.changed |= {line: f"it became another system: {line}"}
            self._note(f"{host.name} has become another system ({line}): its portion is done again")
            self._put_back(host, line, blame=False)
            self._prepare(host)
            return
        if differ["recorded"]:
            line = _changes(differ["recorded"])
            if line not in host.changed:
                self._note(f"{host.name} changed while it measured: {line}")
            host.changed[line] = line
        try:
            self._work.finish(host.target, result)
        except StoreError as exc:
            self._put_back(host, f"{host.name}: {exc}")
            host.phase = HostPhase.IDLE
            return
        host.phase, host.batch = HostPhase.IDLE, None
        host.add(result)

    def _put_back(self, host: FleetHost, why: str, *, blame: bool = True) -> None:
        """Let another host measure a host's batch."""
        self._queue_of(host).put_back(host.batch, why, blame=blame)
        host.batch = None

    def _show_progress(self) -> None:
        hosts = self._hosts.present.values()
        if not hosts:
            self._progress("waiting for hosts to join", 0.0)
            return
        left = self._work.waiting_bricks + sum(len(host.batch or ()) for host in hosts)
        done = self._work.new_bricks
        counts = ", ".join(f"{host.name} {host.new_bricks}" for host in hosts)
        self._progress(f"bricks measured: {counts}", done / max(1, done + left))


def _changes(differ: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{fact} from {old} to {new}" for fact, (old, new) in differ.items())


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host as the scheduler sees it; ``last_seen`` changes with each of its heartbeats."""

    name: str
    last_seen: float


class RemoteCall(Protocol):
    """A function call on a host."""

    def done(self) -> bool:
        """Whether the call has ended, with a result or an error."""

    def result(self) -> Any:
        """The function's return value; raises the function's exception."""

    def cancel(self) -> None:
        """Cancel the call if it has not begun, and drop its result."""


class Cluster(Protocol):
    """Hosts on which functions can be called."""

    def hosts(self) -> Mapping[str, HostStatus]:
        """All hosts that are there now, by address."""

    def call(self, address: str, function: Callable[..., Any], *arguments: Any) -> RemoteCall:
        """Call a function on a host."""

    def notify(self, address: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on a host when it is free, without waiting for a result."""


class HostPhase(Enum):
    """The state of a host's work for the coordinator."""

    GREETING, PREPARING, IDLE, MEASURING = range(4)


@dataclass
class FleetHost:
    """A host that has joined, its running call, and the totals of its measurements.

    ``last_seen`` is the scheduler's time of its last heartbeat, ``seen_s`` the local monotonic time
    at which that was noticed. ``target`` is None until the host is prepared; ``batch`` is what it
    measures in :attr:`HostPhase.MEASURING`. The other fields are as in :class:`HostReport`.
    """

    address: str
    name: str
    last_seen: float
    seen_s: float
    phase: HostPhase = HostPhase.GREETING
    call: RemoteCall | None = None
    target: Target | None = None
    batch: KeyBatch = None
    left: str | None = None
    new_bricks: int = 0
    portions: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    changed: dict[str, str] = field(default_factory=dict)

    def cancel(self) -> None:
        """Cancel the running call, if there is one."""
        if self.call is not None:
            self.call.cancel()
            self.call = None

    def add(self, result: BatchResult) -> None:
        """Count a batch that it measured."""
        self.portions += 1
        self.new_bricks += result.new_bricks
        if result.eviction_short:
            self.changed["memory"] = "memory was short: bricks of large models may be too fast"
        self.sampling = combined([self.sampling, result])

    def report(self) -> HostReport:
        """The work of the host so far."""
        return HostReport(
            name=self.name,
            address=self.address,
            system=None if self.target is None else self.target.system.key,
            left=self.left,
            new_bricks=self.new_bricks,
            portions=self.portions,
            changed=tuple(self.changed.values()),
            **self.sampling.sampling_fields,
        )


class HostList:
    """The hosts that take part, by address, and the hosts that have left."""

    def __init__(self, patience_s: float) -> None:
        """A host without a heartbeat for ``patience_s`` seconds counts as lost."""
        self.present: dict[str, FleetHost] = {}
        self.gone: list[FleetHost] = []
        self._patience_s = patience_s
        # The last heartbeat of a host that was lost; None: it was refused, and stays out.
        self._ignored: dict[str, float | None] = {}

    def lost(self, seen: Mapping[str, HostStatus]) -> Iterator[tuple[FleetHost, str]]:
        """The present hosts that ``seen`` shows to be lost, each with the reason."""
        now = time.monotonic()
        for address, host in list(self.present.items()):
            if address not in seen:
                yield host, "has left, or its process has ended"
            elif seen[address].last_seen != host.last_seen:
                host.last_seen, host.seen_s = seen[address].last_seen, now
            elif now - host.seen_s > self._patience_s:
                yield host, f"has given no sign of life for {self._patience_s:.0f} s"

    def joined(self, seen: Mapping[str, HostStatus]) -> Iterator[FleetHost]:
        """Add new hosts of ``seen``, and hosts with a heartbeat after they were lost."""
        for address, status in seen.items():
            silent = self._ignored.get(address, 0.0) in (status.last_seen, None)
            if address not in self.present and not silent:
                host = FleetHost(address, status.name, status.last_seen, time.monotonic())
                self.present[address] = host
                yield host

    def remove(self, host: FleetHost, why: str, *, refused: bool) -> None:
        """Remove a host; it may join again after its next heartbeat, unless ``refused``."""
        self._ignored[host.address] = None if refused else host.last_seen
        host.left = why
        self.gone.append(self.present.pop(host.address))

    def reports(self) -> tuple[HostReport, ...]:
        """The work of each host; hosts that have left come first."""
        return tuple(host.report() for host in (*self.gone, *self.present.values()))
