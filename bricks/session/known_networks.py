"""Networks of a cache: listed, and loaded to predict with.

Must not know how they are measured, nor how anything is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import UsageError, suggestion
from bricks.measure.collectives import known_collectives
from bricks.network.times import MeasuredNetwork
from bricks.session.targets import version_numbers

if TYPE_CHECKING:
    from bricks.store import Store


def measured_networks(store: Store) -> list[MeasuredNetwork]:
    """All networks of the cache, one for each version of a backend, by name."""
    networks = []
    for network, target in store.systems.network_targets():
        facts = {
            **network.to_json(),
            "target": target.key,
            "backend": target.runtime.backend,
            "version": target.runtime.version,
        }
        networks.append(MeasuredNetwork(network.name, facts, known_collectives(store, target.key)))
    return networks


def network_called(store: Store, name: str) -> MeasuredNetwork:
    """The network with this name or key, measured with its newest backend.

    Raises :class:`UsageError` if there is none, or nothing is measured on it.
    """
    networks = measured_networks(store)
    matching = [
        network for network in networks if name in (network.name, network.fingerprint["key"])
    ]
    known = sorted({network.name for network in networks})
    if not matching:
        meant = suggestion(name, known, "known are") if known else "none is known yet"
        raise UsageError(
            f"no network is called {name!r}: {meant}; 'bricks interconnect measure {name}' makes it"
            " known"
        )
    matching = [network for network in matching if network.samples]
    if not matching:
        raise UsageError(
            f"nothing is measured on network {name!r} yet: run 'bricks interconnect measure {name}'"
        )
    return max(matching, key=lambda network: version_numbers(network.fingerprint["version"]))
