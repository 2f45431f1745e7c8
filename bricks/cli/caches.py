"""Caches of measurements and published measurements, opened for commands that only read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bricks.cli.output import note
from bricks.errors import StoreError
from bricks.session.defaults import CACHE
from bricks.system.derived_files import folder

if TYPE_CHECKING:
    from bricks.store import Published, Reading, Store


# Seconds from which on it is told that indexing took them.
_LONG_S = 0.5


@contextmanager
def known_measurements(cache: str) -> Iterator[Reading]:
    """Open the measurements of ``cache``, if it exists, and the published ones.

    Unlike a bench, this creates no cache. Raises :class:`StoreError` if there are neither.
    """
    from bricks.store import Published, Store, Union

    refuse_missing_cache(cache)
    published = Published()
    with ExitStack() as opened:
        own = [opened.enter_context(Store.open(cache, make=False))] if Store.exists(cache) else []
        yield Union(*own, published)
    note_published(published)


def existing_store(cache: str) -> Store:
    """Open the store in ``cache``, which must exist: a mistyped one must not be created.

    Raises :class:`StoreError` if there is none.
    """
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    return Store.open(cache, make=False)


def refuse_missing_cache(cache: str) -> None:
    """Raise :class:`StoreError` for a cache that does not exist.

    The default cache may be missing if there are published measurements: a new user has none yet,
    and can still ask about those. A mistyped cache must not be created by a question about it.
    """
    from bricks.store import Published, Store

    if not Store.exists(cache) and (cache != CACHE or not Published().entries()):
        raise StoreError(f"there is no cache in {cache}: give another --cache")


def note_published(published: Published) -> None:
    """Print a note for each published file that was left out, and if any was indexed."""
    for problem in published.problems:
        note(f"warning: {problem}")
    took_s = sum(published.indexed_s.values())
    if took_s > _LONG_S:
        names = ", ".join(published.indexed_s)
        again = f"each time, since {folder('published')} cannot be written"
        note(
            f"indexed {names} in {took_s:.1f} s, which is done"
            f" {'once' if published.indexes_kept else again}"
        )
