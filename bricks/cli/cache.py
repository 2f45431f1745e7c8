"""``bricks cache``: inspect the store, check it, export it and import into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bricks.cli.caches import existing_store
from bricks.cli.command import command
from bricks.cli.options import CacheOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.publish import publish
from bricks.cli.traces import TraceOptions, import_trace
from bricks.errors import StoreError, UsageError
from bricks.session.targets import systems_called
from bricks.studies.options import argument, systems_option

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# The counts of an import, as shown to people.
_NEW = ("systems", "networks", "targets", "plans", "bricks", "measurements", "rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The file of results that is written, and the systems whose results it gets."""

    file: Path = argument("The file to write (JSON Lines).", metavar="FILE")
    systems: Sequence[str] | None = systems_option("Only of these systems, by name or key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsFile:
    """The file of results that is read, or the trace."""

    file: Path = argument("From 'cache export' or a portable suite, or a trace.", metavar="FILE")


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look into the cache of measurements, and check it.",
)


@app.command()
@command
def stats(output: CacheOptions) -> None:
    """Count what the cache holds.

    Example: bricks cache stats
    """
    with existing_store(output.cache) as store:
        facts = asdict(store.contents.stats())
    if output.json:
        print_json(facts)
        return
    from bricks.report.tables import facts_table, size

    show(facts_table({**facts, "size_bytes": size(facts["size_bytes"])}))


@app.command()
@command
def verify(output: CacheOptions) -> None:
    """Check that the cache is whole and consistent.

    Example: bricks cache verify
    """
    with existing_store(output.cache) as store:
        problems = store.contents.verify(rekey=_rekey)
        path = store.path
    advice = _advice(path) if problems else None
    if output.json:
        print_json({"path": path, "problems": problems, "advice": advice})
    elif not problems:
        show(f"{path} is sound.")
    finish([*problems, advice] if advice else problems)


@app.command()
@command
def export(asked: ExportOptions, output: CacheOptions) -> None:
    """Write what was measured into one file, for another cache to take in.

    Example: bricks cache export results.jsonl
    """
    from bricks._version import __version__

    with existing_store(output.cache) as store:
        targets = [
            *store.systems.targets(),
            *(target for _, target in store.systems.network_targets()),
        ]
        known = [target.system for target in targets]
        keys = {
            system.key for name in asked.systems or () for system in systems_called(known, name)
        }
        targets = [target for target in targets if not asked.systems or target.system.key in keys]
        if not targets:
            raise StoreError(f"the cache {store.path} holds nothing yet: measure something first")
        count = store.contents.export(
            asked.file, [target.key for target in targets], package=__version__
        )
    names = sorted({target.system.name for target in targets})
    if output.json:
        print_json({"file": str(asked.file), "records": count, "systems": names})
    else:
        show(f"{asked.file}: {count} records of {', '.join(names)}")


@app.command("import")
@command
def import_(asked: ResultsFile, traced: TraceOptions, output: CacheOptions) -> None:
    """Take in what another cache exported: all of it, or, where it cannot be trusted, nothing.

    Or what a portable suite has measured; or a trace of PyTorch's profiler with shapes
    (record_shapes=True), whose calls become measurements of the bricks that they equal, on a system
    of its own. Taking it in twice is the same as once. Example: bricks cache import results.jsonl
    """
    from bricks.decompose.identity import mismatch
    from bricks.session.portable import merge_run
    from bricks.session.trace_import import trace_offer
    from bricks.store import Store
    from bricks.suite.portable import is_run

    if (profiled := trace_offer(asked.file)) is not None:
        import_trace(asked.file, *profiled, traced, output)
        return
    if traced.given:
        raise UsageError(f"{asked.file} is no trace: --model, --host and the like are of traces")
    with Store.open(output.cache) as store:
        if is_run(asked.file):
            merged = merge_run(store, asked.file, mismatch)
        else:
            merged = store.contents.merge(asked.file, mismatch)
    facts = asdict(merged)
    if output.json:
        print_json({"file": str(asked.file), **facts})
        return
    new = ", ".join(f"{facts[name]} {name}" for name in _NEW if facts[name])
    said = [f"new: {new}" if new else "nothing new"]
    if merged.known:
        said.append(f"{merged.known} measurements were known")
    if merged.busy:
        said.append(f"{merged.busy} are just being measured here, and were left alone")
    show(f"{asked.file}: {'; '.join(said)}")


app.command()(publish)


def _advice(path: str) -> str:
    """The remedy for a damaged cache."""
    if "://" in path:
        return f"to go on, restore {path} from a backup, or give another --cache"
    return (
        f"to go on, move {path} away (with {path}-wal and {path}-shm, if there are any), and put an"
        " older copy in its place or let 'bricks measure' begin a new one"
    )


def _rekey(brick: Brick) -> str:
    """The key that a stored brick should have."""
    from bricks.decompose.identity import key_of

    return key_of(brick.model)
