"""The fingerprint of a network between ranks: the facts that determine how fast it is.

Two networks with the same identity share measurements, as systems do. Neither ``identity`` nor
``recorded`` holds an address or the name of a host. Must not know what is sent over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from bricks.system.target import differing, digest_of

PREFIX = "n1-"


@dataclass(frozen=True)  # without slots: the key is cached
class NetworkFingerprint:
    """A network called ``name`` in its first measurement.

    ``identity`` has ``kind`` (the kernel's name for the kind of the interface), ``mtu`` (bytes),
    ``rate_bps`` (the rate to which the kernel shapes it, in bits a second; None: unshaped),
    ``systems`` (keys of the hosts' systems), ``same_host`` and ``cores_per_rank``. ``recorded`` may
    explain a difference.
    """

    name: str
    identity: Mapping[str, Any]
    recorded: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """The network's key in a cache: ``n1-`` and a digest of its identity."""
        return PREFIX + digest_of(self.identity)

    def differences(self, other: NetworkFingerprint) -> dict[str, tuple[Any, Any]]:
        """The differing facts of ``identity``: by name, both values, None for a missing one."""
        return differing(self.identity, other.identity)

    def to_json(self) -> dict[str, Any]:
        """All fields of the network."""
        return {"key": self.key, **asdict(self)}
