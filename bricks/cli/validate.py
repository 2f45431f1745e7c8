"""``bricks validate``: the accuracy of what runtimes compute, by operators or whole models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bricks.cli.command import command
from bricks.cli.options import (
    LISTS,
    RUNNING,
    CommonOptions,
    GeneralOptions,
    ModelOptions,
    RuntimeOptions,
    ShapedModels,
    precision_option,
    retry_option,
    seed_option,
    threads_option,
)
from bricks.cli.output import check_page, finish, note, print_json, show, today, write_page
from bricks.cli.reading import read_all
from bricks.cli.workspaces import opened_workspace
from bricks.errors import BackendError
from bricks.studies.options import argument, option

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.sources import Unread
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
    """The names of the compared runtimes: by default of all that compute, without variants."""
    names = options.runtimes.names
    if not names:
        from bricks.backends import offers

        names = [offer.name for offer in offers() if offer.computes and not offer.variant]
    return list(dict.fromkeys(names))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOperators:
    """The operators that are compared, how often each is evaluated, and the page of results."""

    what: list[str] = argument(
        "Lists (deepbench, zoo), operators of deepbench, ONNX files, or FILE.py:FUNCTION.",
        default=(), metavar="WHAT…", values=LISTS, shown="deepbench",
    )  # fmt: skip
    top: int = option("How many of the zoo's costliest bricks.", default=100, least=1, metavar="N")
    system: str | None = option(
        "The known system whose measurements say which of the zoo's bricks cost most.",
        default=None, metavar="NAME", values="systems", shown="this host, or a published system",
    )  # fmt: skip
    repeats: int = repeats_option(5)
    out: Path | None = option(
        "Write a page too, with heat maps of errors.",
        default=None, metavar="FILE.html", shown=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMeasuring:
    """How precisely latencies of operators are measured."""

    precision: float = precision_option("Sample until a latency is known this well.", PRECISION)
    retry: bool = retry_option()


@command
def operators(
    options: RuntimeComparison, compared: ComparedOperators, measuring: OperatorMeasuring
) -> None:
    """Compare operators over runtimes: latency, share of the machine's peak, and accuracy.

    Errors are norms of the difference from a reference in double precision. What a runtime lacks is
    named with its reason; the exit status is 1 only where nothing ran, or a file cannot be read.
    The list zoo holds the costliest bricks of the zoo, by measurements of this system or --on.
    Example: bricks validate operators deepbench --threads 1 --out operators.html
    """
    from bricks.studies.numerics.operators import DEEPBENCH
    from bricks.studies.numerics.study import OperatorComparisonOptions, OperatorStudy
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    out = compared.out
    if out is not None:
        check_page(out)
    asked = OperatorComparisonOptions(
        runtimes=runtimes_of(options), what=compared.what or [DEEPBENCH],
        system=compared.system, top=compared.top, repeats=compared.repeats,
    )  # fmt: skip
    with open_first(options, precision=measuring.precision, retry=measuring.retry) as workspace:
        result = ask(OperatorStudy(asked, workspace, note))
    note_missing(result.missing)
    page = out if result.operators else None
    if page is not None:
        from bricks._version import __version__
        from bricks.report.operators import operator_page

        write_page(page, operator_page(result, version=__version__, made=today()))
    if options.general.json:
        print_json(json_of(result) | {"page": None if page is None else str(page)})
    elif result.operators:
        from bricks.report.operators import operator_lines, operator_table

        show(operator_table(result), *operator_lines(result))
        if page is not None:
            show("", f"{page}: open it in any browser.")
    finish(result.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModels:
    """The models that are compared, how often each is evaluated, and the tolerated error."""

    models: ShapedModels
    repeats: int = repeats_option(3)
    tolerance: float | None = option(
        "The greatest difference of a value that is no error, relative to the greatest value.",
        default=None, least=0.0, metavar="SHARE", shown="0.001, of 16-bit floats 0.02",
    )  # fmt: skip


@command
def models(options: RuntimeComparison, compared: ComparedModels) -> None:
    """Compare what whole models compute over runtimes, and find the first operator that errs.

    Outputs are held against a reference in double precision and against each other; of an ONNX
    model, every value too. Of a PyTorch program, outputs or loss and gradients are held against the
    same step in double. Nothing is timed. The exit status is 1 where a model was run by none.
    Example: bricks validate models squeezenet --runtime onnxruntime --runtime mxnet
    """
    from bricks.studies.numerics.study import NetworkComparisonOptions, NetworkStudy
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    asked = NetworkComparisonOptions(
        models=_read(options, compared.models), runtimes=runtimes_of(options),
        repeats=compared.repeats, tolerance=compared.tolerance,
    )  # fmt: skip
    with open_first(options) as workspace:
        result = ask(NetworkStudy(asked, workspace, note))
    note_missing(result.missing)
    if options.general.json:
        print_json(json_of(result))
    elif result.networks:
        from bricks.report.operators import network_lines, network_table

        show(network_table(result.networks), *network_lines(result.networks))
    finish(result.errors)


def _read(options: RuntimeComparison, models: ShapedModels) -> Sequence[Model | Unread]:
    """Read the models word by word, since programs are recorded with PyTorch."""
    common = CommonOptions(
        general=options.general,
        models=ModelOptions(**asdict(models), seed=options.seed),
        runtime=RuntimeOptions(threads=options.runtimes.threads),
    )
    return [
        model
        for word in models.words
        for model in read_all(replace(common, models=replace(common.models, words=[word]))).models
    ]


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Compare what runtimes compute with double precision, and with each other.",
)
app.command()(operators)
app.command()(models)
