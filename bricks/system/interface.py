"""Facts about a network interface of this host (or of this network namespace), from the kernel.

Here because they are part of a network's fingerprint. Must not know what is sent over it.
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
    """What the kernel tells of an interface; None where it does not tell.

    ``kind`` is ``loopback``, ``veth``, ``ether`` and so on, ``mtu`` the bytes of a packet at most.
    ``rate_bps`` is the rate that it is shaped to in bits a second; None: to none. ``speed_mbps`` is
    that of the link.
    """

    kind: str | None
    mtu: int | None
    rate_bps: int | None
    speed_mbps: int | None

    @property
    def decisive(self) -> dict[str, Any]:
        """The facts that make another network where they differ, by name."""
        return {"kind": self.kind, "mtu": self.mtu, "rate_bps": self.rate_bps}


def interface_facts(name: str) -> InterfaceFacts:
    """The facts about the interface called ``name``."""
    place = FOLDER / name
    link = _asked("ip", "-j", "-d", "link", "show", "dev", name)
    kind = link.get("linkinfo", {}).get("info_kind") or link.get("link_type")
    if read_int(place / "type") == _LOOPBACK_TYPE:
        kind = "loopback"
    options = _asked("tc", "-j", "qdisc", "show", "dev", name, "root").get("options", {})
    rate = options.get("rate")  # bytes a second
    speed = read_int(place / "speed")
    return InterfaceFacts(
        kind,
        mtu=read_int(place / "mtu") or link.get("mtu"),
        rate_bps=8 * int(rate) if isinstance(rate, int) else None,
        speed_mbps=speed if speed is not None and speed > 0 else None,
    )


def interface_of(address: str) -> str | None:
    """The interface that has this IP address; None if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6) and each.address == address:
                return name
    return None


def _asked(*command: str) -> dict[str, Any]:
    """The first object of a program's answer in JSON; an empty one if there is none."""
    try:
        said = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S
        )
        found = json.loads(said.stdout or b"[]")
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}
