"""``bricks operators``: single operators over runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli import completion
from bricks.cli.choices import LISTS
from bricks.cli.options import Retry, takes_options
from bricks.cli.output import finish, print_json, remark, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.runtimes import (
    PRECISION,
    ComparingRuntimes,
    Repeats,
    open_first,
    runtimes_of,
    tell_missing,
)

if TYPE_CHECKING:
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
class Operators(ComparingRuntimes):
    """Options of ``bricks operators``."""

    what: What = field(default_factory=list)
    precision: Precision = PRECISION
    retry: Retry = False


@takes_options
def operators(
    options: Operators,
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
    from bricks.studies.numerics.named import DEEPBENCH
    from bricks.studies.numerics.options import OperatorOptions
    from bricks.studies.numerics.study import OperatorStudy
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    if out is not None:
        check_page(out)
    asked = OperatorOptions(
        runtimes=runtimes_of(options), what=options.what or [DEEPBENCH], system=system, top=top,
        repeats=repeats,
    )  # fmt: skip
    with open_first(options, precision=options.precision, retry=options.retry) as workspace:
        found = ask(OperatorStudy(asked, workspace, remark))
    tell_missing(found.missing)
    page = out if found.operators else None
    if page is not None:
        _write_page(found, page)
    if options.json:
        print_json(json_of(found) | {"page": None if page is None else str(page)})
    elif found.operators:
        _show(found, page)
    finish(found.errors)


def _show(found: OperatorComparison, page: Path | None) -> None:
    from bricks.report.operators import operator_lines, operator_table

    show(operator_table(found), *operator_lines(found))
    if page is not None:
        show("", f"{page}: open it in any browser.")


def _write_page(found: OperatorComparison, out: Path) -> None:
    from bricks._version import __version__
    from bricks.report.operators import operator_page

    write_page(out, operator_page(found, version=__version__, made=today()))
