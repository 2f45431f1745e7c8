"""``bricks operators``: single operators over runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.choices import LISTS
from bricks.cli.options import Retry, takes_options
from bricks.cli.output import finish, print_json, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.runtimes import (
    PRECISION,
    ComparingRuntimes,
    Repeats,
    open_workspaces,
    runtime_facts,
)
from bricks.errors import BricksError, UsageError
from bricks.session.targets import target_called
from bricks.units.facts import json_of

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.named import ZooSource
    from bricks.studies.numerics.operator import Operator
    from bricks.studies.numerics.results import OperatorComparison

What = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT…",
        autocompletion=completion.values(LISTS),
        show_default="deepbench",
        help="Lists (deepbench, zoo), operators of deepbench, ONNX files, or FILE.py:FUNCTION.",
    ),
]
OfSystem = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="NAME",
        autocompletion=completion.systems,
        help="The known system whose measurements say which of the zoo's bricks cost most.",
        show_default="this host, or a published system",
    ),
]
Top = Annotated[
    int, typer.Option(min=1, metavar="N", help="How many of the zoo's costliest bricks.")
]
Precision = Annotated[
    float,
    typer.Option(
        min=1e-4, max=1.0, metavar="SHARE", help="Sample until a latency is known this well.",
        rich_help_panel="Measuring",
    ),
]  # fmt: skip
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html", help="Write a page too, with heat maps of errors.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions(ComparingRuntimes):
    """Options of ``bricks operators``."""

    what: What = field(default_factory=list)
    precision: Precision = PRECISION
    retry: Retry = False


@takes_options
def operators(
    options: OperatorOptions,
    top: Top = 100,
    system: OfSystem = None,
    repeats: Repeats = 5,
    out: Out = None,
) -> None:
    """Compare operators over runtimes: latency, rates beside the peaks, and accuracy.

    Errors are norms of the difference from a reference in double precision. What a runtime lacks is
    named with its reason; the exit status is 1 only where nothing ran, or a file cannot be read.
    The list zoo holds the costliest bricks of the zoo, by measurements of this system or --system.
    Example: bricks operators deepbench --threads 1 --out operators.html
    """
    from bricks.studies.numerics.comparison import compare_operators

    if out is not None:
        check_page(out)
    with open_workspaces(options, precision=options.precision, retry=options.retry) as opened:
        chosen, errors = _chosen(options, opened.workspaces[0], system, top)
        found = compare_operators(chosen, opened.workspaces, repeats=repeats) if chosen else None
        facts = {**runtime_facts(opened), **_facts(found)}
    if found is not None and out is not None:
        _write_page(found, facts["missing"], out)
    if options.json:
        print_json({**facts, "page": None if out is None or found is None else str(out)})
    elif found is not None:
        from bricks.report.operators import operator_lines, operator_table

        show(operator_table(found), *operator_lines(found))
        if out is not None:
            show("", f"{out}: open it in any browser.")
    runs = [run for result in facts["operators"] for run in result["runtimes"]]
    if runs and all(run["error"] and run["accuracy_error"] for run in runs):
        errors.append(f"nothing ran: {runs[0]['error']}")
    finish(errors)


def _chosen(
    options: OperatorOptions, workspace: Workspace, system: str | None, top: int
) -> tuple[list[Operator], list[str]]:
    """The operators that are named, each once, and the errors of files that cannot be had."""
    from bricks.studies.numerics.named import DEEPBENCH, ZOO, operators_named

    words = options.what or [DEEPBENCH]
    zoo = _zoo(workspace, system, top) if ZOO in words else None
    found: dict[str, Operator] = {}
    errors = []
    for word in words:
        try:
            found |= {operator.name: operator for operator in operators_named(word, zoo)}
        except UsageError:
            raise
        except BricksError as error:
            errors.append(str(error))
    return list(found.values()), errors


def _zoo(workspace: Workspace, system: str | None, top: int) -> ZooSource | None:
    """Where the zoo is measured: the named system, this target, or the first that is published."""
    from bricks.studies.numerics.named import ZooSource

    cut = str(workspace.granularity)
    if system is not None:
        return ZooSource(workspace.known, target_called(workspace, system), cut, top)
    every = {target.key: target for target in workspace.known.systems.targets()}
    for target in (
        *filter(None, [every.get(workspace.target.key)]),
        *workspace.published.systems.targets(),
    ):
        if workspace.known.plans.usage(target.key, cut):
            return ZooSource(workspace.known, target, cut, top)
    return None


def _facts(found: OperatorComparison | None) -> dict[str, Any]:
    if found is None:
        return {"runtimes": [], "operators": []}
    return {
        "runtimes": json_of(found.runtimes),
        "operators": json_of(found.operators),
    }


def _write_page(found: OperatorComparison, missing: list[dict[str, str]], out: Path) -> None:
    from bricks._version import __version__
    from bricks.report.operators import operator_page

    write_page(out, operator_page(found, missing, version=__version__, made=today()))
