"""The cache as the other packages see it: one class, one transaction a call.

A call does its whole work or, after an error, nothing. Every error of the database becomes a
StoreError of one line. Must not know how models are decomposed, measured or recomposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.engine import URL

from bricks.decompose.plan import Brick, Decomposition, Plan, Usage
from bricks.errors import CacheDamaged, StoreError
from bricks.samples.measurement import Failure, Measurement
from bricks.store import engine as database
from bricks.store import export, measurements, merge, results_file
from bricks.store.audit import Rekey, problems
from bricks.store.integrity import integrity_problems, refuse_truncated
from bricks.store.measurements import TimedRound
from bricks.store.merge import Merged, Mismatch
from bricks.store.migrations import prepare
from bricks.store.owners import LEASE_S, Claim, Owner, Watch
from bricks.store.rows import (
    SYSTEM_COLUMNS,
    brick_of,
    brick_row,
    decoding,
    network_of,
    network_row,
    plan_of,
    plan_row,
    system_of,
    system_row,
    target_of,
    target_row,
    usage_in,
)
from bricks.store.schema import bricks, networks, plans, systems, targets
from bricks.store.stats import CacheStats, stats_of
from bricks.system.network import NetworkFingerprint
from bricks.system.target import System, Target, checked_price


class Store:
    """The deduplicating cache; make one with :meth:`open`, and close it."""

    def __init__(
        self, engine: Engine, label: str, lease_s: float, unwritable: str | None = None
    ) -> None:
        """Wrap an engine whose database is prepared; callers want :meth:`open`."""
        self._engine = engine
        self._lease_s = lease_s
        self._watch = Watch(lease_s)
        self._unwritable = unwritable
        self._sound = False  # whether the whole file was checked, and no damage found
        self.path = label

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        lease_s: float = LEASE_S,
        busy_timeout_s: float = database.BUSY_TIMEOUT_S,
        make: bool = True,
    ) -> Store:
        """Open the cache in a folder (made if absent), or at a database URL; migrate if needed.

        A claim that was not renewed for ``lease_s`` is free. A writer waits ``busy_timeout_s``
        for other writers. Where nothing can be written, the cache can still be read. Raises
        StoreError if the database isn't a cache, is damaged, locked or out of reach, or has a
        newer schema; and, without ``make``, if it is empty.
        """
        url = database.locate(location)
        label = database.label_of(url)
        unwritable = None
        try:
            engine = _prepared(url, label, busy_timeout_s, make)
        except StoreError as refused:
            frozen = database.frozen(url, refused)
            if frozen is None:
                raise
            url, unwritable = frozen
            engine = _prepared(url, label, busy_timeout_s, make)
        return cls(engine, label, lease_s, unwritable)

    @staticmethod
    def exists(location: str | Path) -> bool:
        """Whether there is a cache to open at ``location``; unlike :meth:`open`, makes none.

        True for every database URL: only connecting would tell.
        """
        return database.exists(location)

    def close(self) -> None:
        """Close all connections."""
        with database.translated(self.path):
            self._engine.dispose()

    def __enter__(self) -> Store:
        """The store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with database.translated(self.path), database.reading(self._engine) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._unwritable is not None:
            raise database.refusal(self.path, self._unwritable)
        with database.translated(self.path), database.writing(self._engine) as connection:
            yield connection

    # Systems and targets

    def save_target(self, target: Target) -> None:
        """Keep a target and its system; name and recorded facts of a known system are updated."""
        system, row = system_row(target.system), target_row(target)
        with self._reading() as connection:
            known = [
                connection.execute(select(table).where(table.c.key == wanted["key"])).one_or_none()
                for table, wanted in ((systems, system), (targets, row))
            ]
        if all(
            found is not None and wanted.items() <= found._asdict().items()
            for found, wanted in zip(known, (system, row), strict=True)
        ):
            return  # so a cache that cannot be written serves what it holds
        with self._writing() as connection:
            database.insert_or_replace(connection, systems, system, ["key"])
            database.insert_or_replace(connection, targets, row, ["key"])

    def systems(self) -> list[System]:
        """All systems, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(systems).order_by(systems.c.key)).all()
        found: list[System] = []
        for row in rows:
            with decoding(f"system {row.key}"):
                found.append(system_of(row))
        return sorted(found, key=lambda system: system.name)

    def named(self, system: System) -> System:
        """``system`` with the name and the price that the cache has for it, if it has them."""
        for known in self.systems():
            if known.key == system.key:
                return replace(system, name=known.name, price_per_hour=known.price_per_hour)
        return system

    def describe_system(
        self, key: str, *, name: str | None = None, price_per_hour: float | None = None
    ) -> None:
        """Give a system a name, or a price, that stays whatever is measured on it.

        Raises StoreError where another system has the name.
        """
        values: dict[str, Any] = {}
        if name is not None:
            values["given_name"] = name
            for other in self.systems():
                if other.name == name and other.key != key:
                    raise StoreError(f"{other.key} is called {name!r} already: give another name")
        if price_per_hour is not None:
            values["price_per_hour"] = checked_price(price_per_hour)
        if values:
            with self._writing() as connection:
                change = update(systems).where(systems.c.key == key).values(values)
                if connection.execute(change).rowcount != 1:
                    raise StoreError(f"the cache {self.path} knows no system {key}")

    def targets(self) -> list[Target]:
        """All targets that run models, by name of their system."""
        return [target for target in self._targets() if target.runtime.network is None]

    def network_targets(self) -> list[tuple[NetworkFingerprint, Target]]:
        """All targets of collectives, each with its network, by name of the network."""
        # Targets first: a network is kept before its targets, also by another process meanwhile.
        found = [t for t in self._targets() if t.runtime.network is not None]
        with self._reading() as connection:
            rows = connection.execute(select(networks)).all()
        known: dict[str | None, NetworkFingerprint] = {}
        for row in rows:
            with decoding(f"network {row.key}"):
                known[row.key] = network_of(row)
        for target in found:
            if target.runtime.network not in known:
                raise CacheDamaged(
                    f"the network of target {target.key} is not in the cache {self.path}:"
                    " run 'bricks cache verify'"
                )
        pairs = [(known[target.runtime.network], target) for target in found]
        return sorted(pairs, key=lambda pair: (pair[0].name, pair[1].runtime.version))

    def save_network(self, network: NetworkFingerprint) -> None:
        """Keep a network; a known one keeps the name that it has."""
        with self._writing() as connection:
            database.insert_or_ignore(connection, networks, [network_row(network)])

    def _targets(self) -> list[Target]:
        query = select(targets, *SYSTEM_COLUMNS)
        query = query.join(systems).order_by(targets.c.key)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        found: list[Target] = []
        for row in rows:
            with decoding(f"target {row.key}"):
                found.append(target_of(row))
        return sorted(found, key=lambda target: target.system.name)

    # Decompositions

    def save_decomposition(self, decomposition: Decomposition, target_key: str) -> None:
        """Keep a plan and those of its bricks that are new; saved again, the last plan counts."""
        plan = decomposition.plan
        row = plan_row(plan, target_key, decomposition.wall_s)
        new = [brick_row(brick) for _, brick in sorted(decomposition.bricks.items())]
        with self._writing() as connection:
            database.insert_or_ignore(connection, bricks, new)
            unique = ["digest", "granularity", "target_key"]
            database.insert_or_replace(connection, plans, row, unique)

    def save_bricks(self, found: Iterable[Brick]) -> None:
        """Keep those bricks that are new."""
        new = [brick_row(brick) for brick in found]
        if new:
            with self._writing() as connection:
                database.insert_or_ignore(connection, bricks, new)

    def load_plan(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> tuple[Plan, float] | None:
        """The plan of a model, and the wall time in seconds that decomposing took; or None.

        ``name`` becomes the plan's ``model``: the same model may go by several names. None: the
        name that it was decomposed under.
        """
        query = select(plans).where(
            plans.c.digest == digest,
            plans.c.granularity == granularity,
            plans.c.target_key == target_key,
        )
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        with decoding(f"the plan of {name or digest}"):
            plan = plan_of(row)
            return plan if name is None else replace(plan, model=name), row.wall_s

    def plans(self, target_key: str, granularity: str) -> list[tuple[Plan, float]]:
        """All plans that are known there, and the wall seconds that decomposing took, by name."""
        query = select(plans).where(
            plans.c.granularity == granularity, plans.c.target_key == target_key
        )
        found: list[tuple[Plan, float]] = []
        with self._reading() as connection:
            for row in connection.execute(query):
                with decoding(f"the plan of {row.digest}"):
                    found.append((plan_of(row), row.wall_s))
        return sorted(found, key=lambda each: (each[0].model, each[0].digest))

    def learned(self, target_key: str) -> None:
        """Nothing: what is learned from a cache is not kept, because its content changes."""

    def brick_usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[tuple[str, dict[str, Usage]]]:
        """The name of each model whose plan is known there, and its bricks as ``Plan.usage``.

        ``unlearned`` or not: see :meth:`learned`.
        """
        query = select(plans).where(
            plans.c.granularity == granularity, plans.c.target_key == target_key
        )
        found = []
        with self._reading() as connection:
            for row in connection.execute(query.order_by(plans.c.id)):
                with decoding(f"the plan of {row.digest}"):
                    found.append(usage_in(row))
        return found

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """Those of ``keys`` that are known, in the order given."""
        found: dict[str, Brick] = {}
        with self._reading() as connection:
            for chunk in database.chunks(keys):
                for row in connection.execute(select(bricks).where(bricks.c.key.in_(chunk))):
                    with decoding(f"brick {row.key}"):
                        found[row.key] = brick_of(row)
        return {key: found[key] for key in dict.fromkeys(keys) if key in found}

    # Measurements

    def claim(self, target_key: str, keys: Sequence[str], owner: Owner) -> list[Claim]:
        """Claim, at once, those of ``keys`` that are not settled and that no other owner holds.

        The caller measures what it claimed, and then calls :meth:`finish`, :meth:`fail` or
        :meth:`release`. A claim whose process died or whose lease ran out is taken over, with the
        rounds so far; keys that ``owner`` holds already are returned again.
        """
        with self._writing() as connection:
            return measurements.claim(
                connection, target_key, keys, owner, self._lease_s, self._watch
            )

    def append_rounds(self, target_key: str, walk: Mapping[str, TimedRound], owner: Owner) -> None:
        """Add one round to each key of a walk: its raw samples and wall time, in seconds.

        Renews the lease of all that ``owner`` holds. Raises StoreError, and keeps nothing, when a
        key isn't held any more.
        """
        with self._writing() as connection:
            # Renewing comes first: it locks all rows of the owner in their order, and appending
            # needs no others. In the other order, a process that claims could wait for one row
            # while this one waits for another: a deadlock.
            measurements.renew(connection, target_key, owner, self._lease_s)
            measurements.append(connection, target_key, walk, owner)

    def supplement(self, target_key: str, walk: Mapping[str, TimedRound]) -> None:
        """Add one round to each key of a walk that is measured already.

        For keys that are measured again because the machine is in another state now.
        """
        with self._writing() as connection:
            measurements.supplement(connection, target_key, walk)

    def renew(self, target_key: str, owner: Owner) -> None:
        """Prolong the leases of ``owner`` where a long time passes without a round."""
        with self._writing() as connection:
            measurements.renew(connection, target_key, owner, self._lease_s)

    def finish(self, target_key: str, keys: Sequence[str], owner: Owner) -> None:
        """Declare claimed measurements done; each needs samples."""
        with self._writing() as connection:
            measurements.finish(connection, target_key, keys, owner)

    def fail(self, target_key: str, key: str, reason: str, owner: Owner) -> None:
        """Declare that something claimed cannot be measured, and why, in one line."""
        with self._writing() as connection:
            measurements.fail(connection, target_key, key, reason, owner)

    def release(self, target_key: str, keys: Sequence[str], owner: Owner) -> None:
        """Give claims back unfinished; the next owner goes on with their rounds."""
        with self._writing() as connection:
            measurements.release(connection, target_key, keys, owner)

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """Results of those of ``keys`` that are settled on this target, by the current protocol."""
        with self._reading() as connection:
            return measurements.results(connection, target_key, keys)

    def settled(self, target_key: str, keys: Sequence[str]) -> set[str]:
        """Those of ``keys`` that :meth:`results` would tell; takes a fraction of its time."""
        with self._reading() as connection:
            return measurements.settled(connection, target_key, keys)

    def failures(self, target_key: str, keys: Sequence[str]) -> list[Failure]:
        """The failures that :meth:`results` would tell of ``keys``, in the order given."""
        with self._reading() as connection:
            return measurements.failures(connection, target_key, keys)

    def keys_in_states(self, target_key: str, factor: float) -> list[str]:
        """Keys measured on this target at references that differ by more than ``factor``."""
        with self._reading() as connection:
            return measurements.keys_in_states(connection, target_key, factor)

    def reference_counts(self, target_key: str) -> dict[float, int]:
        """Rounds of this target by latency of the reference in seconds, where that was steady."""
        with self._reading() as connection:
            return measurements.reference_counts(connection, target_key)

    def costs(self, target_key: str) -> dict[str, float]:
        """Wall seconds by key of all that is measured on this target, in order of beginning."""
        with self._reading() as connection:
            return measurements.costs(connection, target_key)

    def forget_failures(self, target_key: str, keys: Sequence[str]) -> int:
        """Forget failures so that they are tried again; returns how many there were."""
        with self._writing() as connection:
            return measurements.forget_failures(connection, target_key, keys)

    # Export and merge

    def export(
        self,
        path: Path,
        target_keys: Collection[str],
        *,
        package: str,
        keys: Collection[str] | None = None,
        digits: int | None = None,
    ) -> int:
        """Write all settled measurements on these targets into a file; the number of records.

        The file also holds the targets' plans and their bricks; or, with ``keys``, neither of them
        and only the measurements of these keys, for a cache that has the bricks already.
        ``package`` is the version of the package that writes it. With ``digits``, samples have no
        more significant digits than these. The same content gives the same bytes. Raises StoreError
        if the file cannot be written, or a row is damaged.
        """
        with self._reading() as connection:
            found = export.records(connection, target_keys, keys, digits)
            return results_file.write(path, found, package=package)

    def merge(self, path: Path, mismatch: Mismatch) -> Merged:
        """Merge the results that another cache exported into ``path``: all of them, or none.

        ``mismatch`` returns what is wrong with a brick, or None. Raises StoreError for a file that
        is cut off, was altered, is of a later version, or holds a record that cannot be true.
        """
        with results_file.reading(path) as found, self._writing() as connection:
            # Rows that merging looks up and writes later must not be written by others in between.
            database.lock_tables(connection, merge.WRITTEN)
            return merge.merge(connection, found, mismatch, self._watch)

    # The cache itself

    def stats(self) -> CacheStats:
        """Counts and size; CacheDamaged if the file is damaged, for the counts may be too low."""
        self.refuse_damage()
        with self._reading() as connection:
            return stats_of(connection, self.path)

    def refuse_damage(self) -> None:
        """Raise CacheDamaged if the database file is damaged.

        An index that has lost entries makes measurements look missing, and they would be made
        again: so a caller asks this before it measures, predicts or counts. The first call reads
        the whole file, in a few milliseconds for each megabyte. A file in which it found no damage
        is not read again until the store is opened again: writes of this and other processes
        go through SQLite's transactions, which leave the file whole. Use :meth:`verify` to look
        again.
        """
        if self._sound:
            return
        with self._reading() as connection:
            for problem in integrity_problems(connection):
                raise CacheDamaged(
                    f"the cache {self.path} is damaged ({problem}): run 'bricks cache verify'"
                )
        self._sound = True

    def verify(self, rekey: Rekey | None = None) -> list[str]:
        """Check the whole cache; returns the problems found, one line each, none if it is sound.

        ``rekey`` recomputes a brick's key, so that its identity is checked too.
        """
        found: list[str] = []
        try:
            with self._reading() as connection:
                found.extend(" ".join(line.split()) for line in problems(connection, rekey))
        except StoreError as exc:
            if not found:  # else it is what was found already that ends the transaction
                found.append(str(exc))
        return found


def _prepared(url: URL, label: str, busy_timeout_s: float, make: bool) -> Engine:
    refuse_truncated(url)
    engine = database.connect(url, busy_timeout_s)
    try:
        with database.translated(label):
            prepare(engine, label, busy_timeout_s, make)
    except BaseException:
        engine.dispose()
        raise
    return engine
