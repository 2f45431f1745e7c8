"""The contents of a cache as a whole: counted, checked, exported, and merged with another's.

Must not know how models are decomposed or measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import StoreError

if TYPE_CHECKING:
    from bricks.store.audit import Rekey
    from bricks.store.database import Database
    from bricks.store.merge import Merged, Mismatch
    from bricks.store.owners import Watch
    from bricks.store.results_file import Record
    from bricks.store.stats import CacheStats


class CacheContents:
    """The whole content of a cache; ``watch`` validates claims of other processes."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    def stats(self) -> CacheStats:
        """Counts and size; CacheDamaged if the file is damaged, for the counts may be too low."""
        from bricks.store.stats import stats_of

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
