"""The interface of the cache: repositories over one database connection, and its whole content.

A call of a repository is one transaction: it does its whole work or, after an error, nothing. Every
error of the database becomes a StoreError of one line. The content as a whole is counted, checked,
exported, and merged with another's. Must not know how models are decomposed, measured or
recomposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.closing import Closing
from bricks.errors import StoreError
from bricks.store.database import Database
from bricks.store.database_file import exists
from bricks.store.layout import LEASE_S
from bricks.store.measurements import Measurements
from bricks.store.plans import CachedPlans
from bricks.store.systems import Systems
from bricks.store.views import BUSY_TIMEOUT_S

if TYPE_CHECKING:
    from bricks.store.audit import Rekey
    from bricks.store.claims import Claims
    from bricks.store.export import CacheStats
    from bricks.store.merge import Merged, Mismatch
    from bricks.store.owners import Watch
    from bricks.store.results_file import Record


class Store(Closing):
    """The deduplicating cache; make one with :meth:`open`, and close it.

    ``systems``, ``plans``, ``measurements`` and ``claims`` are its content by subject, and
    ``contents`` the whole content. ``path`` is its file, or its URL without what may be secret.
    """

    def __init__(self, database: Database, lease_s: float) -> None:
        """Wrap an open database; callers want :meth:`open`."""
        self._database = database
        self.path = database.label
        self.systems = Systems(database)
        self.plans = CachedPlans(database)
        self.measurements = Measurements(database)
        self._lease_s = lease_s

    @cached_property
    def claims(self) -> Claims:
        """What processes hold of it, and change of these."""
        from bricks.store.claims import Claims

        return Claims(self._database, self._watch)

    @cached_property
    def contents(self) -> CacheContents:
        """The whole content."""
        return CacheContents(self._database, self._watch)

    @cached_property
    def _watch(self) -> Watch:
        from bricks.store.owners import Watch

        return Watch(self._lease_s)

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        lease_s: float = LEASE_S,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        make: bool = True,
    ) -> Store:
        """Open the cache in a folder (made if absent), or at a database URL; migrate if needed.

        A claim that was not renewed for ``lease_s`` is free. A writer waits ``busy_timeout_s``
        for other writers. Where nothing can be written, the cache can still be read. Raises
        StoreError if the database isn't a cache, is damaged, locked or out of reach, or has a
        newer schema; and, without ``make``, if it is empty.
        """
        return cls(Database.open(location, busy_timeout_s=busy_timeout_s, make=make), lease_s)

    @staticmethod
    def exists(location: str | Path) -> bool:
        """Whether there is a cache to open at ``location``; unlike :meth:`open`, makes none.

        True for every database URL: only connecting would show it.
        """
        return exists(location)

    def refuse_damage(self) -> None:
        """Raise CacheDamaged if the database file is damaged.

        An index that has lost entries makes measurements look missing, and they would be made
        again: so a caller asks this before it measures, predicts or counts. The first call reads
        the whole file, in a few milliseconds for each megabyte. A file in which it found no damage
        is not read again until the store is opened again. ``contents.verify`` looks again.
        """
        self._database.refuse_damage()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


class CacheContents:
    """The whole content of a cache; ``watch`` validates claims of other processes."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    def stats(self) -> CacheStats:
        """Counts and size; CacheDamaged if the file is damaged, for the counts may be too low."""
        from bricks.store.export import stats_of

        self._database.refuse_damage()
        with self._database.reading() as connection:
            return stats_of(connection, self._database.label)

    def verify(self, rekey: Rekey | None = None) -> list[str]:
        """Check the whole cache; returns the problems found, one line each, none if it is sound.

        ``rekey`` recomputes a brick's key, so that its identity is checked too.
        """
        from bricks.store.audit import problems

        problems_found: list[str] = []
        try:
            with self._database.viewing() as view:
                problems_found.extend(" ".join(line.split()) for line in problems(view, rekey))
        except StoreError as exc:
            if not problems_found:  # else it is what was found already that ends the transaction
                problems_found.append(str(exc))
        return problems_found

    def export(
        self,
        path: Path,
        target_keys: Collection[str],
        *,
        package: str,
        keys: Collection[str] | None = None,
        digits: int | None = None,
    ) -> int:
        """Write all settled measurements on the targets into a file; returns the number of records.

        The file also holds the targets' plans and their bricks; or, with ``keys``, neither of them
        and only the measurements of these keys, for a cache that has the bricks already.
        ``package`` is the version of the package that writes it. With ``digits``, samples have no
        more significant digits than these. The same content gives the same bytes. Raises StoreError
        if the file cannot be written, or a row is damaged.
        """
        from bricks.store import export, results_file

        with self._database.reading() as connection:
            records = export.records(connection, target_keys, keys, digits)
            return results_file.write(path, records, package=package)

    def merge(self, path: Path, mismatch: Mismatch) -> Merged:
        """Merge the results that another cache exported into ``path``: all of them, or none.

        ``mismatch`` returns what is wrong with a brick, or None. Raises StoreError for a file that
        is cut off, was altered, is of a later version, or holds a record that cannot be true.
        """
        from bricks.store import results_file

        with results_file.reading(path) as records:
            return self.merge_records(records, mismatch)

    def merge_records(self, records: Iterable[Record], mismatch: Mismatch) -> Merged:
        """Merge records in the order of their kinds: all of them, or none.

        Raises ValueError for a record that cannot be true, and else as :meth:`merge`.
        """
        from bricks.store import merge
        from bricks.store.engine import lock_tables

        with self._database.writing() as connection:
            # Rows that merging looks up and writes later must not be written by others in between.
            lock_tables(connection, merge.WRITTEN)
            return merge.merge(connection, records, mismatch, self._watch)
