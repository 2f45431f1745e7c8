"""The owner of a claim on a measurement: its process, its name, and whether the claim still counts.

A claim names a process. On the host of that process every other process can see whether it still
lives, so the claims of a killed run are free at once; on other hosts only the end of the lease says
that they are free. Must not know the database.
"""

from __future__ import annotations

import os
import platform
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import printable

if TYPE_CHECKING:
    from bricks.samples.measurement import Round

# Where /proc does not give the start of a process in ticks since the host started, psutil derives
# it from a clock that may be set meanwhile. A process number is not used again that fast.
_START_TOLERANCE_S = 2.0

_MAX_COMMAND = 60


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that claims work. ``token`` distinguishes owners within one process.

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
    """A key to measure, with the rounds of earlier, unfinished runs.

    ``rounds`` are raw latencies in seconds, ``wall_s`` is the time spent on them.
    """

    key: str
    rounds: tuple[Round, ...]
    wall_s: float


def host_id() -> str:
    """An identifier of the running kernel and of the namespace of its process numbers.

    Containers share a kernel but not process numbers; without the namespace a process in one would
    take the live processes of another for dead.
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
    """Whether the owner's process exists; True for other hosts, where that is not known."""
    if owner.host != host_id():
        return True
    import psutil  # here: an answer from the cache checks no claim

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
    """Start of a process in seconds after the host's; psutil.NoSuchProcess if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        import psutil

        return psutil.Process(pid).create_time()
    # After the name, which is in brackets and may hold anything: the twentieth field.
    return float(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def lease_columns(lease_s: float) -> dict[str, float]:
    """The columns with the end of a lease that begins now, by both clocks, in seconds."""
    return {
        "lease_until_s": time.time() + lease_s,
        "lease_until_monotonic_s": time.monotonic() + lease_s,
    }


class Watch:
    """Decides whether claims are still valid, by monotonic clocks where it can.

    On the owner's host the end of a lease is judged by the monotonic clock, on other hosts by the
    time of day. There a lease has also ended when it was not renewed for as long as a lease lasts,
    so a clock that is a year off does not keep a claim alive.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._first_seen: dict[tuple[str, float], float] = {}
        self._alive: dict[str, bool] = {}

    def refresh(self) -> None:
        """Discard the cached liveness of owners, which is slow to determine."""
        self._alive.clear()

    def is_valid(self, owner: Owner, lease_until_s: float, lease_until_monotonic_s: float) -> bool:
        """Whether a claim is valid now: its lease has not ended, and its process may still live."""
        now = time.monotonic()
        if owner.host == host_id():
            if owner.token not in self._alive:
                self._alive[owner.token] = alive(owner)
            return lease_until_monotonic_s > now and self._alive[owner.token]
        seen = self._first_seen.setdefault((owner.token, lease_until_s), now)
        return lease_until_s > time.time() and now - seen < self.lease_s


def process_name(pid: int) -> str:
    """``process 1234 (bricks predict resnet50)``; without the command where it is not known.

    Options of the command are left out: a line of a log must not tell a password.
    """
    command = _command(pid)
    return f"process {pid} ({command})" if command else f"process {pid}"


def _command(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended, or belongs to another user, or the platform has no /proc
        return ""
    words = line.split("\0")[:-1]
    names = [Path(word).name for word in words]
    begin = names.index("bricks") if "bricks" in names else 0
    # Anything after an option may be its value.
    options = (n for n, word in enumerate(words) if n > begin and word.startswith("-"))
    shown = [*names[begin : begin + 1], *words[begin + 1 : next(options, len(words))]]
    return printable(" ".join(shown))[:_MAX_COMMAND]
