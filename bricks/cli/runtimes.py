"""Options of commands that compare runtimes, and the workspace that opens these runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bricks.cli.options import RUNNING, GeneralOptions, seed_option, threads_option
from bricks.cli.output import note
from bricks.cli.workspaces import opened_workspace
from bricks.errors import BackendError
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.results import MissingRuntime

# The precision of latencies: operators are compared with each other, not added up.
PRECISION, MAX_ROUNDS = 0.02, 12


def repeats_option(default: int) -> Any:
    """The field of the number of evaluations."""
    return option(
        "Evaluations of each, whose results may differ bit by bit.",
        default=default, least=1, most=1000, metavar="N",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuntimes:
    """The runtimes that are compared, and their threads; None: all installed, without variants."""

    names: list[str] | None = option(
        "A runtime to compare; may be repeated.",
        default=None, flag="--runtime", metavar="NAME", values="runtimes",
        shown="all that are installed, without variants", group=RUNNING,
    )  # fmt: skip
    threads: int | None = threads_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeComparison:
    """Options of all commands that compare runtimes."""

    general: GeneralOptions
    seed: int = seed_option()
    runtimes: ComparedRuntimes = field(default_factory=ComparedRuntimes)


def runtimes_of(options: RuntimeComparison) -> list[str]:
    """The names of the compared runtimes."""
    return list(dict.fromkeys(options.runtimes.names or _usual()))


@contextmanager
def open_first(
    options: RuntimeComparison, *, precision: float = PRECISION, retry: bool = False
) -> Iterator[Workspace]:
    """Open a workspace with the first of the runtimes that is installed.

    Raises :class:`UsageError` for an unknown runtime, and :class:`BackendError` if none of them is
    installed.
    """
    from bricks.measure.conditions import Conditions, StopRule
    from bricks.session.options import Options

    rule = StopRule(precision=precision, max_rounds=MAX_ROUNDS)
    workspace_options = Options(
        runtime=_first_installed(runtimes_of(options)), threads=options.runtimes.threads,
        seed=options.seed, retry=retry, conditions=Conditions(rule=rule),
    )  # fmt: skip
    with opened_workspace(options.general.cache, workspace_options) as workspace:
        yield workspace


def _first_installed(names: Sequence[str]) -> str:
    from bricks import backends

    errors = []
    for name in names:
        try:
            return backends.describe(name).name
        except BackendError as error:
            errors.append(error)
    raise errors[0]


def note_missing(missing: Sequence[MissingRuntime]) -> None:
    """Print a note for each runtime that is left out, with the reason."""
    for runtime in missing:
        note(f"{runtime.runtime} is left out: {runtime.reason}")


def _usual() -> list[str]:
    """The names of all runtimes that compute, without variants of others."""
    from bricks.backends import offers

    return [offer.name for offer in offers() if offer.computes and not offer.variant]
