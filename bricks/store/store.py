"""The interface of the cache: repositories over one database connection.

A call of a repository is one transaction: it does its whole work or, after an error, nothing. Every
error of the database becomes a StoreError of one line. Must not know how models are decomposed,
measured or recomposed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.closing import Closing
from bricks.store.database import Database
from bricks.store.layout import LEASE_S
from bricks.store.location import exists
from bricks.store.measurements import Measurements
from bricks.store.plans import CachedPlans
from bricks.store.systems import Systems
from bricks.store.views import BUSY_TIMEOUT_S

if TYPE_CHECKING:
    from bricks.store.claims import Claims
    from bricks.store.contents import CacheContents
    from bricks.store.owners import Watch


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
        from bricks.store.contents import CacheContents

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
