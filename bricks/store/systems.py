"""Systems, networks and targets of a cache, which measurements refer to.

Must not know what was measured on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from bricks.errors import CacheDamaged, StoreError
from bricks.store.rows import (
    TARGETS,
    decoding,
    fingerprint_row,
    network_of,
    system_of,
    target_of,
    target_row,
)
from bricks.system.network import NetworkFingerprint
from bricks.system.target import System, Target, checked_price

if TYPE_CHECKING:
    from bricks.store.database import Database
    from bricks.store.views import Row

Decoded = TypeVar("Decoded", System, Target, NetworkFingerprint)


class Systems:
    """The systems, networks and targets that a cache knows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save_target(self, target: Target) -> None:
        """Store a target and its system; name and recorded facts of a known system are updated."""
        rows = ("systems", fingerprint_row(target.system)), ("targets", target_row(target))
        with self._database.viewing() as view:
            known = [
                next(
                    view.rows(f"SELECT * FROM {table} WHERE key = :key", {"key": row["key"]}),
                    None,
                )
                for table, row in rows
            ]
        if all(
            stored is not None and row.items() <= stored._asdict().items()
            for stored, (_, row) in zip(known, rows, strict=True)
        ):
            return  # so a read-only cache can still be used
        from bricks.store.engine import insert_or_replace
        from bricks.store.schema import metadata

        with self._database.writing() as connection:
            for table, row in rows:
                insert_or_replace(connection, metadata.tables[table], row, ["key"])

    def all(self) -> list[System]:
        """All systems, by name."""
        statement = "SELECT * FROM systems ORDER BY key"
        return sorted(self._decoded(statement, "system", system_of), key=lambda system: system.name)

    def named(self, system: System) -> System:
        """``system`` with its name and price in the cache, if the cache has it."""
        for known in self.all():
            if known.key == system.key:
                return replace(system, name=known.name, price_per_hour=known.price_per_hour)
        return system

    def describe(
        self, key: str, *, name: str | None = None, price_per_hour: float | None = None
    ) -> None:
        """Set a system's name or price permanently.

        Raises StoreError where another system has the name.
        """
        values: dict[str, Any] = {}
        if name is not None:
            values["given_name"] = name
            for other in self.all():
                if other.name == name and other.key != key:
                    raise StoreError(f"{other.key} is called {name!r} already: give another name")
        if price_per_hour is not None:
            values["price_per_hour"] = checked_price(price_per_hour)
        if values:
            from sqlalchemy import update

            from bricks.store.schema import systems

            with self._database.writing() as connection:
                change = update(systems).where(systems.c.key == key).values(values)
                if connection.execute(change).rowcount != 1:
                    raise StoreError(f"the cache {self._database.label} knows no system {key}")

    def targets(self) -> list[Target]:
        """All targets that run models, by name of their system."""
        return [target for target in self._targets() if target.runtime.network is None]

    def network_targets(self) -> list[tuple[NetworkFingerprint, Target]]:
        """All targets of collectives, each with its network, by name of the network."""
        # Targets first: a network is kept before its targets, also by another process meanwhile.
        targets = [t for t in self._targets() if t.runtime.network is not None]
        decoded = self._decoded("SELECT * FROM networks", "network", network_of)
        known: dict[str | None, NetworkFingerprint] = {of.key: of for of in decoded}
        for target in targets:
            if target.runtime.network not in known:
                raise CacheDamaged(
                    f"the network of target {target.key} is not in the cache"
                    f" {self._database.label}: run 'bricks cache verify'"
                )
        pairs = [(known[target.runtime.network], target) for target in targets]
        return sorted(pairs, key=lambda pair: (pair[0].name, pair[1].runtime.version))

    def save_network(self, network: NetworkFingerprint) -> None:
        """Store a network; a known network keeps its name."""
        from bricks.store.engine import insert_or_ignore
        from bricks.store.schema import networks

        with self._database.writing() as connection:
            insert_or_ignore(connection, networks, [fingerprint_row(network)])

    def _targets(self) -> list[Target]:
        decoded = self._decoded(f"{TARGETS} ORDER BY targets.key", "target", target_of)
        return sorted(decoded, key=lambda target: target.system.name)

    def _decoded(
        self, statement: str, kind: str, decode: Callable[[Row], Decoded]
    ) -> list[Decoded]:
        """The rows of ``statement`` as data; CacheDamaged names a row that does not decode."""
        with self._database.viewing() as view:
            rows = list(view.rows(statement))
        decoded: list[Decoded] = []
        for row in rows:
            with decoding(f"{kind} {row.key}"):
                decoded.append(decode(row))
        return decoded
