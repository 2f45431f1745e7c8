"""The interface of the cache: repositories over one database connection.

A call of a repository is one transaction: it does its whole work or, after an error, nothing. Every
error of the database becomes a StoreError of one line. Must not know how models are decomposed,
measured or recomposed.
"""

from __future__ import annotations

from pathlib import Path

from bricks.closing import Closing
from bricks.store import engine
from bricks.store.claims import Claims
from bricks.store.contents import CacheContents
from bricks.store.database import Database
from bricks.store.measurements import Measurements
from bricks.store.owners import LEASE_S, Watch
from bricks.store.plans import CachedPlans
from bricks.store.systems import Systems


class Store(Closing):
    """The deduplicating cache; make one with :meth:`open`, and close it.

    ``systems``, ``plans``, ``measurements`` and ``claims`` are its content by subject, and
    ``contents`` the whole content. ``path`` is its file, or its URL without what may be secret.
    """

    def __init__(self, database: Database, lease_s: float) -> None:
        """Wrap an open database; callers want :meth:`open`."""
        watch = Watch(lease_s)
        self._database = database
        self.path = database.label
        self.systems = Systems(database)
        self.plans = CachedPlans(database)
        self.measurements = Measurements(database)
        self.claims = Claims(database, watch)
        self.contents = CacheContents(database, watch)

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        lease_s: float = LEASE_S,
        busy_timeout_s: float = engine.BUSY_TIMEOUT_S,
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
        return engine.exists(location)

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
