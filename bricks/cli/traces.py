"""The import of a profiler's trace: its options, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.backends.profiler_trace import Unmatched
from bricks.cli.options import CacheOptions, threads_option
from bricks.cli.output import print_json, show, show_notes
from bricks.cli.workspaces import opened_workspace
from bricks.errors import UsageError
from bricks.studies.options import batch_option, option

if TYPE_CHECKING:
    from bricks.backends.offer import Offer
    from bricks.backends.profiler_trace import TraceFormat
    from bricks.session.trace_import import DecomposedOn, ImportedTrace
    from bricks.store import Store

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
        _show(path, imported)


@contextmanager
def _opened(
    offer: Offer, asked: TraceOptions, output: CacheOptions
) -> Iterator[tuple[Store, DecomposedOn | None]]:
    """The cache, and the model that ran if one is named."""
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


def _show(path: Path, imported: ImportedTrace) -> None:
    runtime, merged = imported.target.runtime, imported.merged
    new = f"new: {merged.measurements} measurements, {merged.rounds} rounds"
    show(
        f"{path}: {imported.matched} of {imported.calls} calls are {imported.bricks} known bricks;"
        f" {new if merged.rounds else 'nothing new'}",
        f"system {imported.target.system.name}, {runtime.backend} {runtime.version},"
        f" {runtime.provider}, threads: {runtime.threads}",
    )
    show_notes(*_remarks(imported))


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
    """The most frequent operators, with the number of their calls."""
    most = sorted(operators.items(), key=lambda entry: (-entry[1], entry[0]))
    names = [f"{count} × {name}" for name, count in most[:_MOST]]
    rest = sum(count for _, count in most[_MOST:])
    return ", ".join(names) + (f" and {rest} other calls" if rest else "")
