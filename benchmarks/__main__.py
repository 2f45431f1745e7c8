"""The command line of all benchmarks: ``python -m benchmarks NAME``."""

from __future__ import annotations

import argparse
import importlib
import math
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.study import ROOT, Benchmark, Options, Results

NAMES = (
    "accuracy", "another_time", "answers", "collectives", "cost", "generation", "gpu", "growth",
    "memory", "operators", "prediction", "runtimes", "scaling", "scenarios", "served", "times",
    "torch_steps", "training", "transfer",
)  # fmt: skip
PAPER = "paper"  # keeps sums over the bricks of all models, so it has a command line of its own
QUICK = ROOT / "build" / "benchmarks"


def benchmarks_in(module: str) -> tuple[Benchmark[Any, Any], ...]:
    """The benchmarks in a module of this package."""
    found: tuple[Benchmark[Any, Any], ...] = importlib.import_module(
        f"benchmarks.{module}"
    ).BENCHMARKS
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure the cases of a module's benchmarks that lack a row, and write its page.

    Returns the exit status.
    """
    arguments = list(sys.argv[1:] if words is None else words)
    if arguments[:1] == [PAPER]:
        status: int = importlib.import_module("benchmarks.paper").main(arguments[1:])
        return status
    given = _parser().parse_args(arguments)
    if given.again and given.cache is not None:
        sys.exit("--again begins with an empty cache: give no --cache, or remove that folder")
    measuring = not (given.rows or given.only_page)
    if given.again and measuring and not given.quick:
        shutil.rmtree(ROOT / "cache" / given.name, ignore_errors=True)
    options = Options(
        tuple(given.only), time.monotonic() + 60 * given.minutes, given.cache, given.runtime,
        given.retry, given.again, given.quick, QUICK if given.quick else given.results,
    )  # fmt: skip
    for benchmark in benchmarks_in(given.name):
        if measuring:
            benchmark.measure(options)
        _show(benchmark, benchmark.kept(options.results), given)
    return 0


def _show(
    benchmark: Benchmark[Any, Any], kept: Sequence[Results[Any]], given: argparse.Namespace
) -> None:
    """Print all rows, or write the page where no case is missing or nothing is to be measured."""
    if not kept or not kept[0].rows:
        print(f"{benchmark.title}: nothing is measured yet", file=sys.stderr)
    elif given.rows or given.quick:
        print("\n\n".join(map(benchmark.listed, kept)))
    elif not given.only_page and (missing := benchmark.missing(kept[0])):
        text = f"{benchmark.title}: {missing} cases are missing; the page stays as it is"
        print(f"{text}: run it again, or give --only-page", file=sys.stderr)
    else:
        benchmark.write_page(kept[0], given.docs / benchmark.page)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("name", choices=(*NAMES, PAPER), help="the benchmark; paper has options of its own")
    add("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these words")
    add("--minutes", type=float, default=math.inf, help="begin no case after this time")
    add("--cache", type=Path, help="the folder of caches; default: cache/NAME")
    add("--runtime", help="in place of the runtimes that the benchmark names")
    add("--retry", action="store_true", help="measure again what failed")
    add("--again", action="store_true", help="measure everything again")
    add("--quick", action="store_true", help="two cases, roughly: does it work? build/benchmarks/")
    add("--only-page", action="store_true", help="measure nothing: write the page from the results")
    add("--rows", action="store_true", help="measure nothing: print all rows of the results")
    add("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of results")
    add("--docs", type=Path, default=ROOT / "research", help="folder of the page")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: run the same command again to go on")
