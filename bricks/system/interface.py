"""Facts about a network interface of this host (or of this network namespace), from the kernel.

They are part of a network's fingerprint. Must not know what is sent over it.
"""

from __future__ import annotations

import json
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bricks.system.limits import read_int

# Interfaces as Linux lists them.
FOLDER = Path("/sys/class/net")

_LOOPBACK_TYPE = 772  # ARPHRD_LOOPBACK of linux/if_arp.h
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class InterfaceFacts:
    """Facts that the kernel states of an interface; None if it does not state one.

    ``kind`` is ``loopback``, ``veth``, ``ether`` and so on, ``mtu`` the bytes of a packet at most.
    ``rate_bps`` is the rate to which it is shaped in bits a second; None: it is not. ``speed_mbps``
    is the speed of the link, in millions of bits a second.
    """

    kind: str | None
    mtu: int | None
    rate_bps: int | None
    speed_mbps: int | None

    @property
    def decisive(self) -> dict[str, Any]:
        """The facts of a network's identity, by name."""
        return {"kind": self.kind, "mtu": self.mtu, "rate_bps": self.rate_bps}


def interface_facts(name: str) -> InterfaceFacts:
    """The facts about the interface called ``name``."""
    folder = FOLDER / name
    link = _first_object("ip", "-j", "-d", "link", "show", "dev", name)
    kind = link.get("linkinfo", {}).get("info_kind") or link.get("link_type")
    if read_int(folder / "type") == _LOOPBACK_TYPE:
        kind = "loopback"
    options = _first_object("tc", "-j", "qdisc", "show", "dev", name, "root").get("options", {})
    rate = options.get("rate")  # bytes a second
    speed = read_int(folder / "speed")
    return InterfaceFacts(
        kind,
        mtu=read_int(folder / "mtu") or link.get("mtu"),
        rate_bps=8 * int(rate) if isinstance(rate, int) else None,
        speed_mbps=speed if speed is not None and speed > 0 else None,
    )


def interface_of(address: str) -> str | None:
    """The name of the interface with this IP address; None if there is none."""
    families = (socket.AF_INET, socket.AF_INET6)
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.family in families and entry.address == address for entry in entries):
            return name
    return None


def _first_object(*command: str) -> dict[str, Any]:
    """The first object of a program's output in JSON; an empty one if there is none."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S
        )
        output = json.loads(done.stdout or b"[]")
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return output[0] if isinstance(output, list) and output and isinstance(output[0], dict) else {}
