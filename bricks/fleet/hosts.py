"""The coordinator's state of each host: its work, and whether it is still connected.

A scheduler reports its hosts and the time of each one's last heartbeat; this module derives which
hosts have joined and which are lost. Must not know Dask (:class:`Cluster` stands for it), nor the
requests to a host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bricks.fleet.report import HostReport
from bricks.samples.sampling import Sampling, combined

if TYPE_CHECKING:
    from bricks.fleet.host import BatchResult
    from bricks.fleet.queue import KeyBatch
    from bricks.system import Target


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
