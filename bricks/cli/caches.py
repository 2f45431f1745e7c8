"""What commands can read: the cache, and the measurements that ship with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bricks.cli.output import note
from bricks.errors import StoreError
from bricks.session.defaults import CACHE

if TYPE_CHECKING:
    from bricks.store import Published, Reading, Store


@contextmanager
def known_measurements(cache: str) -> Iterator[Reading]:
    """The cache, if there is one, and what is published. Makes no cache, unlike a bench.

    Raises :class:`StoreError` where neither can be had.
    """
    from bricks.store import Published, Store, Union

    refuse_missing_cache(cache)
    published = Published()
    with ExitStack() as opened:
        own = [opened.enter_context(Store.open(cache, make=False))] if Store.exists(cache) else []
        yield Union(*own, published)
    note_problems(published)


def existing_store(cache: str) -> Store:
    """The open cache, which must exist: opening a mistyped one must not create it.

    Raises :class:`StoreError` where there is none.
    """
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    return Store.open(cache, make=False)


def refuse_missing_cache(cache: str) -> None:
    """:class:`StoreError` if there is no such cache, unless it is the usual one, which may come.

    A mistyped cache must not be created by asking about it; nor must a newcomer, who has none yet,
    be refused what is published.
    """
    from bricks.store import Published, Store

    if not Store.exists(cache) and (cache != CACHE or not Published().entries()):
        raise StoreError(f"there is no cache in {cache}: give another --cache")


def note_problems(published: Published) -> None:
    """Say which published files had to be left out."""
    for problem in published.problems:
        note(f"warning: {problem}")
