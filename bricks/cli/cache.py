"""``bricks cache``: look into the store, and check it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from bricks.cli.options import Cache, Json
from bricks.cli.output import finish, print_json, show
from bricks.errors import StoreError

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.store import Store

app = typer.Typer(no_args_is_help=True, help="Look into the cache of measurements, and check it.")


@app.command()
def stats(json: Json = False, cache: Cache = "cache") -> None:
    """Count what the cache holds.

    Example: bricks cache stats
    """
    with _open(cache) as store:
        facts = asdict(store.stats())
    if json:
        print_json(facts)
        return
    from bricks.report.tables import facts_table, size

    show(facts_table({**facts, "size_bytes": size(facts["size_bytes"])}))


@app.command()
def verify(json: Json = False, cache: Cache = "cache") -> None:
    """Check that the cache is whole and consistent.

    Example: bricks cache verify
    """
    with _open(cache) as store:
        problems = store.verify(rekey=_rekey)
        path = store.path
    advice = _advice(path) if problems else None
    if json:
        print_json({"path": path, "problems": problems, "advice": advice})
    elif not problems:
        show(f"{path} is sound.")
    finish([*problems, advice] if advice else problems)


def _advice(path: str) -> str:
    """How to go on with a damaged cache."""
    if "://" in path:
        return f"to go on, restore {path} from a backup, or give another --cache"
    return (
        f"to go on, move {path} away (with {path}-wal and {path}-shm, if there are any), and put an"
        " older copy in its place or let 'bricks measure' begin a new one"
    )


def _open(cache: str) -> Store:
    """The cache, which must be there: looking into one that is mistyped must not create it."""
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    return Store.open(cache, make=False)


def _rekey(brick: Brick) -> str:
    """The key that a stored brick should have."""
    from bricks.decompose.identity import key_of

    return key_of(brick.model)
