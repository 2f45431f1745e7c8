"""Workspaces and caches, opened from the options of a command.

Commands that only read open a cache of measurements, or published ones. Overlap rules are found by
name: ``rules.py:no_two_large``, or an importable module.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bricks.cli import invocation
from bricks.cli.options import CommonOptions
from bricks.cli.output import answer_with, note, terminal_progress
from bricks.errors import StoreError, UsageError, first_line
from bricks.session.defaults import CACHE, PROGRAMS_RUNTIME, RUNTIME
from bricks.system.derived_files import folder

if TYPE_CHECKING:
    from bricks.compose.schedule import Rule
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.store import Published, Reading, Store
    from bricks.system import Target


@contextmanager
def open_workspace(options: CommonOptions, *, elsewhere: bool = False) -> Iterator[Workspace]:
    """Open a workspace with the options of a command; progress is shown on a terminal.

    With ``elsewhere``, the command asks about other hosts only.
    """
    chosen = replace(workspace_options(options), elsewhere=elsewhere)
    with opened_workspace(options.general.cache, chosen) as workspace:
        yield workspace


@contextmanager
def opened_workspace(cache: str, options: Options) -> Iterator[Workspace]:
    """Open a workspace on ``cache`` with the library's ``options``; progress is shown."""
    from bricks.session.workspace import Workspace

    with (
        terminal_progress() as progress,
        Workspace.open(cache, options, progress=progress) as workspace,
    ):
        info = workspace.setup.info
        if info.note is not None:
            note(info.note)
        if info.users:  # a Python of the user, in which a worker may lack packages
            from bricks.system.worker_packages import worker_packages  # most runtimes need none

            answer_with(python=info.python)
            worker_packages(info.python, note)
        yield workspace
        note_published(workspace.published)


def workspace_options(options: CommonOptions) -> Options:
    """Convert the options of a command to the library's options of a workspace."""
    from bricks.session.options import Options

    if options.measuring is not None and options.measuring.repeat_inputs:
        note(
            "all runs have the same inputs, which processors learn: sorting, searching and trees"
            " may take twice as long on inputs that change"
        )
    return Options(
        runtime=runtime_of(options),
        granularity=options.runtime.granularity,
        optimization=options.runtime.optimization,
        threads=options.runtime.threads,
        device=options.runtime.device,
        python=options.runtime.python,
        seed=options.models.seed,
        **_measuring(options),
        **_parallel(options),
    )


def _measuring(options: CommonOptions) -> dict[str, Any]:
    from bricks.measure.conditions import Conditions, StopRule

    measuring = options.measuring
    if measuring is None:
        return {}
    conditions = Conditions(
        rule=StopRule(precision=measuring.precision),
        timeout_s=measuring.timeout_s,
        budget_s=measuring.budget_s,
        budget_began_s=invocation.began_s(),
        again=measuring.again,
    )
    return {
        "conditions": conditions,
        "retry": measuring.retry,
        "effort": measuring.effort,
        "repeat_inputs": measuring.repeat_inputs,
    }


def _parallel(options: CommonOptions) -> dict[str, Any]:
    parallel = options.parallel
    if parallel is None:
        return {}
    numbers = {"workers": parallel.workers, "copies": parallel.copies}
    if parallel.overlap_rule is None:
        return numbers
    return {**numbers, "may_overlap": load_rule(parallel.overlap_rule)}


def runtime_of(options: CommonOptions) -> str:
    """The named runtime; the one of programs if only programs are given, and no other is named.

    Words that name no model do not count.
    """
    from bricks.sources import is_found, is_program

    words, name = options.models.words, options.runtime.name
    if name != RUNTIME or not any(map(is_program, words)):
        return name
    others = [word for word in words if not is_program(word) and is_found(word)]
    return name if others else PROGRAMS_RUNTIME


def target_facts(target: Target, options: CommonOptions) -> dict[str, Any]:
    """The keys that begin the JSON of answers about ``target``."""
    return {
        "system": target.system.to_json(),
        "runtime": target.runtime.to_json(),
        "granularity": options.runtime.granularity,
    }


# Seconds of indexing from which on a line says so.
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


def load_rule(text: str) -> Rule:
    """Load the overlap rule of ``FILE.py:NAME`` or ``MODULE:NAME``; executes that code.

    Raises :class:`UsageError` if there is none.
    """
    origin, separator, name = text.rpartition(":")
    if not (origin and separator and name):
        raise UsageError(f"--overlap-rule {text!r} names no rule: give FILE.py:NAME or MODULE:NAME")
    try:
        module = (
            _from_file(Path(origin)) if origin.endswith(".py") else importlib.import_module(origin)
        )
    except Exception as exc:  # any error of the user's code
        raise UsageError(
            f"--overlap-rule {text!r}: {origin} cannot be loaded"
            f" ({type(exc).__name__}: {first_line(exc)})"
        ) from exc
    rule: Rule | None = getattr(module, name, None)
    if not callable(rule):
        what = "nothing" if rule is None else f"a {type(rule).__name__}"
        raise UsageError(f"--overlap-rule {text!r}: {name} is {what} in {origin}, not a function")
    return rule


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # its name ends with .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
