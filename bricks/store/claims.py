"""Who holds a claim on a measurement, and whether that claim still counts.

A claim names a process. On the host of that process anybody can see whether it still lives, so
that what a killed run left behind is free at once; elsewhere only the end of the lease tells.
Must not know the database.
"""

from __future__ import annotations

import os
import platform
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

from bricks.samples.measurement import Round

LEASE_S = 600.0

# Where the start of a process is not told in ticks since the host started, psutil derives it from a
# clock that may be set meanwhile. A process number is not used again that fast.
_START_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that claims work. ``token`` tells owners within one process apart.

    ``started_s`` is when the process began, in seconds after the host did: process numbers are used
    again, and the time of day can be set.
    """

    host: str
    pid: int
    started_s: float
    token: str

    @classmethod
    def current(cls) -> Owner:
        """A new owner: this process, with a token of its own."""
        return cls(host_id(), os.getpid(), _started_s(os.getpid()), uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Claim:
    """Something to measure, with what earlier, unfinished runs already sampled.

    ``rounds`` are raw latencies in seconds, ``wall_s`` is the time spent on them.
    """

    key: str
    rounds: tuple[Round, ...]
    wall_s: float


def host_id() -> str:
    """Names the running kernel and, within it, the space in which process numbers mean something.

    Containers share a kernel but not process numbers; without the second part they would take one
    another for dead.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return platform.node()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return boot


def alive(owner: Owner) -> bool:
    """Whether the owner's process exists; on other hosts that isn't known and taken as true."""
    if owner.host != host_id():
        return True
    try:
        process = psutil.Process(owner.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(_started_s(owner.pid) - owner.started_s) <= _START_TOLERANCE_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _started_s(pid: int) -> float:
    """When a process began, by a clock that nobody sets; psutil.NoSuchProcess if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return psutil.Process(pid).create_time()
    # After the name, which is in brackets and may hold anything: the twentieth field.
    return float(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def lease_columns(lease_s: float) -> dict[str, float]:
    """When a lease that begins now ends, by both clocks."""
    return {
        "lease_until_s": time.time() + lease_s,
        "lease_until_monotonic_s": time.monotonic() + lease_s,
    }


class Watch:
    """Judges claims, and does not trust the time of day further than it must.

    On the owner's host, a clock that nobody sets tells when a lease ends. Elsewhere the time of day
    does; but a lease that stays as it is for as long as a lease lasts has ended too, even if one of
    the hosts takes that time for next year.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._first_seen: dict[tuple[str, float], float] = {}
        self._alive: dict[str, bool] = {}

    def look_again(self) -> None:
        """Ask anew which owners live; in between answers are kept, since looking is slow."""
        self._alive.clear()

    def counts(self, owner: Owner, lease_until_s: float, lease_until_monotonic_s: float) -> bool:
        """Whether a claim counts now: its lease runs, and its process may still live."""
        now = time.monotonic()
        if owner.host == host_id():
            if owner.token not in self._alive:
                self._alive[owner.token] = alive(owner)
            return lease_until_monotonic_s > now and self._alive[owner.token]
        seen = self._first_seen.setdefault((owner.token, lease_until_s), now)
        return lease_until_s > time.time() and now - seen < self._lease_s
