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

from bricks.measure.measurement import Round

LEASE_S = 600.0

# psutil derives the start of a process from the boot time, which moves a little when the clock is
# set. A process number is not used again that fast.
_START_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that claims work. ``token`` tells owners within one process apart.

    ``started_s`` is the Unix time at which the process began: process numbers are used again.
    """

    host: str
    pid: int
    started_s: float
    token: str

    @classmethod
    def current(cls) -> Owner:
        """A new owner: this process, with a token of its own."""
        process = psutil.Process()
        return cls(host_id(), process.pid, process.create_time(), uuid.uuid4().hex)


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
        return abs(process.create_time() - owner.started_s) <= _START_TOLERANCE_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def holds(owner: Owner, lease_until_s: float) -> bool:
    """Whether a claim of ``owner`` counts now: its lease runs and its process may still live."""
    return lease_until_s > time.time() and alive(owner)
