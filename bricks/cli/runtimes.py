"""Options of commands that compare runtimes, and the workspace that these are opened from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

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
    from bricks.studies.numerics.results import MissingRuntime

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


def runtimes_of(options: ComparingRuntimes) -> list[str]:
    """The runtimes that are compared."""
    return list(dict.fromkeys(options.runtime or _usual()))


@contextmanager
def open_first(
    options: ComparingRuntimes, *, precision: float = PRECISION, retry: bool = False
) -> Iterator[Workspace]:
    """A workspace with the first of these runtimes that is installed, progress on a terminal.

    Raises :class:`UsageError` for a runtime that nobody has, and :class:`BackendError` if none of
    them is installed.
    """
    from bricks.measure.conditions import Conditions
    from bricks.measure.rounds import StopRule
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace

    rule = StopRule(precision=precision, max_rounds=MAX_ROUNDS)
    given = Options(
        runtime=_first_installed(runtimes_of(options)), threads=options.threads,
        seed=options.seed, retry=retry, conditions=Conditions(rule=rule),
    )  # fmt: skip
    with (
        terminal_progress() as progress,
        Workspace.open(options.cache, given, progress=progress) as opened,
    ):
        yield opened
        warn_of(opened.published)


def _first_installed(names: Sequence[str]) -> str:
    from bricks import backends

    errors = []
    for name in names:
        try:
            return backends.describe(name).name
        except BackendError as error:
            errors.append(error)
    raise errors[0]


def tell_missing(missing: Sequence[MissingRuntime]) -> None:
    """Say which runtimes are left out, and why."""
    for each in missing:
        remark(f"{each.runtime} is left out: {each.reason}")


def _usual() -> list[str]:
    """All runtimes that compute, without variants of others."""
    from bricks.backends import offers

    return [offer.name for offer in offers() if offer.computes and not offer.variant]
