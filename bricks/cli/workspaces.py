"""Workspaces opened from the options of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.cli import clock
from bricks.cli.caches import note_published
from bricks.cli.options import CommonOptions
from bricks.cli.output import answer_with, note
from bricks.cli.progress import terminal_progress
from bricks.cli.rules import load_rule
from bricks.session.defaults import PROGRAMS_RUNTIME, RUNTIME

if TYPE_CHECKING:
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
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
        _note_python(workspace)
        yield workspace
        note_published(workspace.published)


def _note_python(workspace: Workspace) -> None:
    """Note which Python of the user runs the runtime, and get what a worker lacks there."""
    info = workspace.setup.info
    if info.note is not None:
        note(info.note)
    if info.users:
        from bricks.system.worker_packages import worker_packages  # most runtimes need none

        answer_with(python=info.python)
        worker_packages(info.python, note)


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
        budget_began_s=clock.began_s(),
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
