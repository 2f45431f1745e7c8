"""Options of commands that compare runtimes, and their workspaces, one for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.known import warn_of
from bricks.cli.options import Cache, Json, Seed, Threads
from bricks.cli.output import remark
from bricks.cli.progress import terminal_progress
from bricks.cli.verbosity import Quiet, Verbose
from bricks.errors import BackendError
from bricks.session.defaults import CACHE

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace

RuntimeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime",
        metavar="NAME",
        autocompletion=completion.runtimes,
        show_default="all that are installed, without variants",
        help="A runtime to compare; may be repeated.",
        rich_help_panel="Runtime",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        min=1,
        max=1000,
        metavar="N",
        help="Evaluations of each, whose results may differ bit by bit.",
    ),
]
# The precision of latencies: operators are compared with each other, not added up.
PRECISION, MAX_ROUNDS = 0.02, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparingRuntimes:
    """Options of all commands that compare runtimes."""

    json: Json = False
    cache: Cache = CACHE
    seed: Seed = 0
    runtime: RuntimeNames = None
    threads: Threads = None
    quiet: Quiet = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True)
class OpenWorkspaces:
    """A workspace for each runtime; ``missing`` are those not installed, with the reason."""

    workspaces: Sequence[Workspace]
    missing: Sequence[dict[str, str]]


@contextmanager
def open_workspaces(
    options: ComparingRuntimes, *, precision: float = PRECISION, retry: bool = False
) -> Iterator[OpenWorkspaces]:
    """Workspaces with these options, their progress shown on a terminal.

    Raises :class:`UsageError` for a runtime that nobody has, and :class:`BackendError` if none of
    them is installed.
    """
    from bricks import backends
    from bricks.measure.conditions import Conditions
    from bricks.measure.rounds import StopRule
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace

    names, missing = list(dict.fromkeys(options.runtime or _usual())), []
    rule = StopRule(precision=precision, max_rounds=MAX_ROUNDS)
    with terminal_progress() as progress, ExitStack() as opened:
        workspaces = []
        for name in names:
            try:
                backends.describe(name)
            except BackendError as error:
                missing.append({"runtime": name, "reason": str(error)})
                continue
            given = Options(
                runtime=name, threads=options.threads, seed=options.seed, retry=retry,
                conditions=Conditions(rule=rule),
            )  # fmt: skip
            workspaces.append(
                opened.enter_context(Workspace.open(options.cache, given, progress=progress))
            )
        if not workspaces:
            raise BackendError(missing[0]["reason"])
        yield OpenWorkspaces(workspaces, missing)
        warn_of(workspaces[0].published)
    for each in missing:
        remark(f"{each['runtime']} is left out: {each['reason']}")


def _usual() -> list[str]:
    """All runtimes that compute, without variants of others."""
    from bricks.backends import offers

    return [offer.name for offer in offers() if offer.computes and not offer.variant]


def runtime_facts(opened: OpenWorkspaces) -> dict[str, Any]:
    """The JSON of the system and of the runtimes that are missing."""
    return {
        "system": opened.workspaces[0].target.system.to_json(),
        "missing": list(opened.missing),
    }
