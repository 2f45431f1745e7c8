"""The fingerprint of a network: what ranks of a job are joined by, as far as it decides how fast.

Two networks with the same identity share measurements, as systems do. Neither identity nor what is
recorded holds an address or the name of a host. Must not know what is sent over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from bricks.system.target import digest_of

PREFIX = "n1-"


@dataclass(frozen=True)  # without slots: the key is asked for many times
class NetworkFingerprint:
    """A network called ``name`` by whoever measured it first.

    ``identity`` has ``kind`` (of the interface, as the kernel calls it), ``mtu``, ``rate_bps`` (to
    which the kernel shapes it, in bits a second; None: it does not), ``systems`` (keys of the
    hosts' systems), ``same_host`` and ``cores_per_rank``. ``recorded`` may explain a difference.
    """

    name: str
    identity: Mapping[str, Any]
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """``n1-`` and a digest of the identity."""
        return PREFIX + digest_of(self.identity)

    def differences(self, other: NetworkFingerprint) -> dict[str, tuple[Any, Any]]:
        """The facts of the identity in which two networks differ."""
        names = dict.fromkeys([*self.identity, *other.identity])
        return {
            name: (self.identity.get(name), other.identity.get(name))
            for name in names
            if self.identity.get(name) != other.identity.get(name)
        }

    def to_json(self) -> dict[str, Any]:
        """All fields of the network."""
        return {"key": self.key, **asdict(self)}
