"""Network namespaces of this host, each with one interface, connected by a switch.

So ranks on one host communicate as if over a network, whose bandwidth the kernel shapes: packets
that an interface sends pass a token bucket (tbf). Names of namespaces have the number of the
process that made them; the next process removes namespaces of an ended one. Needs root and Linux.
Must not know what runs in the namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bricks.errors import WorkerError, first_line
from bricks.measure.ranks import RankLocation, cores_of
from bricks.store import Owner, alive

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
        _make_switch(switch)
        for rank, name in enumerate(names):
            _make(name, rank, switch, rate_bps)
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


def _make_switch(name: str) -> None:
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "add", "switch", "type", "bridge")
    _run("ip", "-n", name, "link", "set", "switch", "up")


def _make(name: str, rank: int, switch: str, rate_bps: int | None) -> None:
    port = f"port{rank}"
    _run("ip", "netns", "add", name)
    _run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", _INTERFACE, "netns", name)
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
