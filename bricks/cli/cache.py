"""``bricks cache``: inspect the store, check it, export it and import into it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli import completion
from bricks.cli.options import Cache, Json
from bricks.cli.output import finish, print_json, show
from bricks.cli.publish import publish
from bricks.errors import StoreError
from bricks.session.targets import systems_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.store import Store

# The counts of an import, as shown to people.
_NEW = ("systems", "networks", "targets", "plans", "bricks", "measurements", "rounds")

app = typer.Typer(no_args_is_help=True, help="Look into the cache of measurements, and check it.")


@app.command()
def stats(json: Json = False, cache: Cache = "cache") -> None:
    """Count what the cache holds.

    Example: bricks cache stats
    """
    with _open(cache) as store:
        facts = asdict(store.contents.stats())
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
        problems = store.contents.verify(rekey=_rekey)
        path = store.path
    advice = _advice(path) if problems else None
    if json:
        print_json({"path": path, "problems": problems, "advice": advice})
    elif not problems:
        show(f"{path} is sound.")
    finish([*problems, advice] if advice else problems)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write (JSON Lines).")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.systems,
            help="Only of this system (or key); may be repeated.",
        ),
    ] = None,
    json: Json = False,
    cache: Cache = "cache",
) -> None:
    """Write what was measured into one file, for another cache to take in.

    Example: bricks cache export results.jsonl
    """
    from bricks._version import __version__

    with _open(cache) as store:
        targets = [
            *store.systems.targets(),
            *(target for _, target in store.systems.network_targets()),
        ]
        known = [target.system for target in targets]
        keys = {found.key for name in system or () for found in systems_called(known, name)}
        targets = [target for target in targets if not system or target.system.key in keys]
        if not targets:
            raise StoreError(f"the cache {store.path} holds nothing yet: measure something first")
        count = store.contents.export(file, [target.key for target in targets], package=__version__)
    names = sorted({target.system.name for target in targets})
    if json:
        print_json({"file": str(file), "records": count, "systems": names})
    else:
        show(f"{file}: {count} records of {', '.join(names)}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'cache export' wrote.")],
    json: Json = False,
    cache: Cache = "cache",
) -> None:
    """Take in what another cache exported: all of it, or, where it cannot be trusted, nothing.

    Taking it in twice is the same as once. Example: bricks cache import results.jsonl
    """
    from bricks.decompose.identity import mismatch
    from bricks.store import Store

    with Store.open(cache) as store:
        merged = store.contents.merge(file, mismatch)
    facts = asdict(merged)
    if json:
        print_json({"file": str(file), **facts})
        return
    new = ", ".join(f"{facts[name]} {name}" for name in _NEW if facts[name])
    said = [f"new: {new}" if new else "nothing new"]
    if merged.known:
        said.append(f"{merged.known} measurements were known")
    if merged.busy:
        said.append(f"{merged.busy} are just being measured here, and were left alone")
    show(f"{file}: {'; '.join(said)}")


app.command()(publish)


def _advice(path: str) -> str:
    """The remedy for a damaged cache."""
    if "://" in path:
        return f"to go on, restore {path} from a backup, or give another --cache"
    return (
        f"to go on, move {path} away (with {path}-wal and {path}-shm, if there are any), and put an"
        " older copy in its place or let 'bricks measure' begin a new one"
    )


def _open(cache: str) -> Store:
    """The cache, which must exist: opening a mistyped one must not create it."""
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    return Store.open(cache, make=False)


def _rekey(brick: Brick) -> str:
    """The key that a stored brick should have."""
    from bricks.decompose.identity import key_of

    return key_of(brick.model)
