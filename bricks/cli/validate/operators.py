"""``bricks validate operators``: single operators over runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.cli.choices import LISTS
from bricks.cli.command import command
from bricks.cli.options import precision_option, retry_option
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.runtimes import (
    PRECISION,
    RuntimeComparison,
    note_missing,
    open_first,
    repeats_option,
    runtimes_of,
)
from bricks.studies.options import argument, option

if TYPE_CHECKING:
    from bricks.studies.numerics.results import OperatorComparison


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
        _write_page(result, page)
    if options.general.json:
        print_json(json_of(result) | {"page": None if page is None else str(page)})
    elif result.operators:
        _show(result, page)
    finish(result.errors)


def _show(result: OperatorComparison, page: Path | None) -> None:
    from bricks.report.operators import operator_lines, operator_table

    show(operator_table(result), *operator_lines(result))
    if page is not None:
        show("", f"{page}: open it in any browser.")


def _write_page(result: OperatorComparison, out: Path) -> None:
    from bricks._version import __version__
    from bricks.report.operators import operator_page

    write_page(out, operator_page(result, version=__version__, made=today()))
