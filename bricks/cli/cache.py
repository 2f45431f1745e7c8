"""``bricks cache``: inspect the store, check it, export, import and publish it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bricks.backends.profiler_trace import Unmatched
from bricks.cli.command import command
from bricks.cli.options import CacheOptions, OutputOptions, threads_option
from bricks.cli.output import finish, print_json, show, show_notes, terminal_progress
from bricks.cli.workspaces import existing_store, opened_workspace
from bricks.errors import BricksError, StoreError, UsageError
from bricks.session.defaults import MAX_THREADS, RUNTIME
from bricks.session.targets import systems_called
from bricks.studies.options import argument, batch_option, option, systems_option
from bricks.units.quantities import whole_numbers_of

if TYPE_CHECKING:
    from bricks.backends.offer import Offer
    from bricks.backends.profiler_trace import TraceFormat
    from bricks.session.trace_import import DecomposedOn, ImportedTrace
    from bricks.store import Store
    from bricks.system import Runtime

# A line names so many operators.
_MOST = 3
_TRACE = "Traces"


def _name(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise UsageError("a name is empty: leave the option out, or give a name")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What a trace does not tell: the model that ran in it, and where."""

    model: str | None = option(
        "The model that ran in a trace, for calls of which the trace tells too little.",
        default=None, metavar="MODEL", values="models", group=_TRACE, shown=False,
    )  # fmt: skip
    batch: int | None = batch_option()
    host: str | None = option(
        "A name for the host of a trace.",
        default=None, metavar="NAME", group=_TRACE, shown="its GPU, or this host", check=_name,
    )  # fmt: skip
    threads: int | None = threads_option()
    version: str | None = option(
        "The version of PyTorch that wrote a trace.",
        default=None, flag="--runtime-version", metavar="VERSION", group=_TRACE, shown=False,
        check=_name,
    )  # fmt: skip

    @property
    def given(self) -> bool:
        """Whether any of them is given."""
        return any(getattr(self, field.name) is not None for field in fields(self))


def import_trace(
    path: Path, offer: Offer, of: TraceFormat, asked: TraceOptions, output: CacheOptions
) -> None:
    """Import a trace in the format ``of`` that the profiler of ``offer`` wrote."""
    from bricks.session.trace_import import TracedHost, TraceImport

    host = TracedHost(asked.host, asked.threads, asked.version)
    with _opened(offer, asked, output) as (store, model):
        imported = TraceImport(store, offer, of).run(path, host, model)
    if output.json:
        print_json({"file": str(path), **_facts(imported)})
    else:
        runtime, merged = imported.target.runtime, imported.merged
        new = f"new: {merged.measurements} measurements, {merged.rounds} rounds"
        show(
            f"{path}: {imported.matched} of {imported.calls} calls are {imported.bricks} known"
            f" bricks; {new if merged.rounds else 'nothing new'}",
            f"system {imported.target.system.name}, {runtime.backend} {runtime.version},"
            f" {runtime.provider}, threads: {runtime.threads}",
        )
        show_notes(*_remarks(imported))


@contextmanager
def _opened(
    offer: Offer, asked: TraceOptions, output: CacheOptions
) -> Iterator[tuple[Store, DecomposedOn | None]]:
    from bricks.session.options import Options
    from bricks.session.trace_import import decomposed_on
    from bricks.store import Store

    word = asked.model
    if word is None:
        if asked.batch is not None:
            raise UsageError("--batch is of a model: name it with --model")
        with Store.open(output.cache) as store:
            yield store, None
        return
    options = Options(runtime=offer.name, keep_plans=False)
    with opened_workspace(output.cache, options) as workspace:
        read = partial(workspace.read, word, batch=asked.batch)
        yield workspace.store, decomposed_on(workspace, read)


def _facts(imported: ImportedTrace) -> dict[str, Any]:
    target = imported.target
    return {
        "system": target.system.to_json(),
        "runtime": target.runtime.to_json(),
        "calls": imported.calls,
        "matched_calls": imported.matched,
        "matched_bricks": imported.bricks,
        "unknown": dict(imported.unknown),
        "unseen": dict(imported.unseen),
        "unfinished_calls": imported.unfinished,
        "loose_kernels": imported.loose_kernels,
        **asdict(imported.merged),
    }


def _remarks(imported: ImportedTrace) -> Iterator[str]:
    yield "Times on the host have the profiler's own in them; caches are as in these steps."
    for why, operators in imported.left_out.items():
        yield f"Left out: {_few(operators)}."
        yield from WHY[why]
    if imported.unfinished:
        yield f"{imported.unfinished} calls are left out: not all of their kernels are traced."
    if imported.loose_kernels:
        yield f"{imported.loose_kernels} kernels are left out: no call has launched them."


# Why calls are left out, and what to do: lines of at most 80 columns.
WHY = {
    Unmatched.UNKNOWN: ("No known brick equals these calls.",),
    Unmatched.UNNAMED: ("The trace tells too little of these: --model names what ran.",),
    Unmatched.FOREIGN: ("It tells too little of these, and the model makes no such calls.",),
    Unmatched.SEVERAL: (
        "Bricks of the model differ only in what the trace does not write.",
        "Measure them with bricks measure, where the model runs.",
    ),
    Unmatched.UNPROVEN: (
        "Their size is not written, and no call that reads the results proves it.",
        "Measure them with bricks measure, where the model runs.",
    ),
}


def _few(operators: Mapping[str, int]) -> str:
    most = sorted(operators.items(), key=lambda entry: (-entry[1], entry[0]))
    names = [f"{count} × {name}" for name, count in most[:_MOST]]
    rest = sum(count for _, count in most[_MOST:])
    return ", ".join(names) + (f" and {rest} other calls" if rest else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The models and targets that are published, the cache of their results, and the folder."""

    models: list[str] | None = argument(
        "Models, by name, file or folder.",
        default=None, metavar="[MODEL]…", values="models", shown="the whole zoo",
    )  # fmt: skip
    into: Path = option(
        "The folder of published files and their index.",
        default=Path("cache/published"), metavar="FOLDER",
    )  # fmt: skip
    threads: Sequence[int] = option(
        "Numbers of threads, each a target.",
        default=(1, 2), metavar="1,2", shown="1,2",
        read=partial(whole_numbers_of, most=MAX_THREADS, what="numbers of threads"),
    )  # fmt: skip
    runtime: str = option(
        "What executes models.", default=RUNTIME, metavar="NAME", values="runtimes"
    )
    cache: str = option(
        "A cache for this alone: all of it is published. A second call goes on with it.",
        default="cache/publishing", metavar="FOLDER",
    )  # fmt: skip


@command
def publish(asked: PublishOptions, output: OutputOptions) -> None:
    """Measure the zoo on this quiet host, check estimates against runs, and write a results file.

    Takes a quarter of an hour for each number of threads. Without models given, those that the
    runtime does not run are left out by name. Example: bricks cache publish
    """
    from bricks.analysis import publishing
    from bricks.analysis.publishing import runnable, validated
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.sources import zoo_of

    into = asked.into
    if not into.is_dir():
        raise UsageError(f"{into}: there is no such folder: make it first")
    names = asked.models or [entry.name for entry in zoo_of(asked.runtime)]
    validations, refused = [], dict[str, str]()
    with terminal_progress() as progress:
        for number in asked.threads:
            options = Options(runtime=asked.runtime, threads=number, published=False)
            with Workspace.open(asked.cache, options, progress=progress) as workspace:
                chosen, why_not = runnable(workspace, [workspace.read(name) for name in names])
                refused |= why_not
                if asked.models and refused:
                    raise BricksError(next(iter(refused.values())))
                validations.append(validated(workspace, chosen))
    entry = publishing.publish(asked.cache, validations, into)
    size = (into / entry.file).stat().st_size
    if output.json:
        print_json({"folder": str(into), "bytes": size, **entry.to_json(), "left_out": refused})
        return
    show(*(f"left out: {reason}" for reason in refused.values()))
    show(f"{into / entry.file}: {size / 1e6:.1f} MB, SHA-256 {entry.sha256}")
    show(*(_line(target.runtime, entry.about["targets"][target.key]) for target in entry.targets))


def _line(runtime: Runtime, facts: dict[str, Any]) -> str:
    from bricks.report.words import count_text

    return (
        f"  {runtime.backend}, {count_text(runtime.threads, 'thread')}: {facts['models']}"
        f" models, {facts['bricks']} bricks; estimates beside runs: median error"
        f" {facts['median_abs_error']:.1%}, largest {facts['max_abs_error']:.1%},"
        f" geometric mean of ratios {facts['geomean_ratio']:.3f}"
    )


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
    from bricks.decompose.identity import key_of

    with existing_store(output.cache) as store:
        problems = store.contents.verify(rekey=lambda brick: key_of(brick.model))
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
    if "://" in path:
        return f"to go on, restore {path} from a backup, or give another --cache"
    return (
        f"to go on, move {path} away (with {path}-wal and {path}-shm, if there are any), and put an"
        " older copy in its place or let 'bricks measure' begin a new one"
    )
