"""The evaluation of the DLBricks paper over again: MXNet and ONNX Runtime, G = 1 … 10, `executed`.

Writes docs/paper.md with its figures, and the raw results.

    .venv/bin/python benchmarks/paper.py --cache cache/paper

Every model of the zoo that comes from MXNet is run on each runtime at each granularity, batch 1,
one thread; results go to benchmarks/results/paper.json after each model. With ``--cache``, a run
that was interrupted goes on, and one that was finished measures nothing again; without, the cache
is a temporary one. ``--write-only`` writes the page from the results. Run nothing else meanwhile.

How long it takes: rounds are few (4; up to 12 where latencies vary), since errors of single models
are averaged over fifty. A model that takes W seconds costs about 8 W at each granularity (4 rounds
of a warm-up and a sample), less what is known of its bricks; the whole model costs 8 W once for all
numbers of layers, and once for `executed`. Loading what is measured takes half a second to two
seconds each time. With half of the bricks known, that is 60 W + 12 s for a model and runtime: for
50 models that take 0.1 s on average, 15 minutes on each runtime.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from evaluation import figures, page, results
from evaluation.measuring import Benches, Evaluation, Settings, dated, tell
from evaluation.results import EXECUTED, Results, ResultsError

from bricks import BricksError, StopRule
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "paper.json"
DOCS = ROOT / "docs"
# Where quick runs go, whose results nobody should find beside the others.
ASIDE = ROOT / "build" / "paper"

RUNTIMES = ("mxnet", "onnxruntime")
GRANULARITIES = (*map(str, range(1, 11)), EXECUTED)
RULE = StopRule(precision=0.03, min_rounds=4, max_rounds=12, passes=1)

QUICK = ("1", "2", "5", "10", EXECUTED)
QUICK_RULE = StopRule(precision=0.5, min_rounds=2, max_rounds=2, passes=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the raw results and the page; the exit status."""
    options = _parser().parse_args(arguments)
    aside = options.quick
    path = options.results or (ASIDE / "paper.json" if aside else RESULTS)
    docs = options.docs or (ASIDE if aside else DOCS)
    try:
        for folder in (path.parent, docs):  # what cannot be written is said before it is measured
            folder.mkdir(parents=True, exist_ok=True)
        found = results.read(path) if options.write_only else measure(options, path)
        publish(found, docs)
    except (BricksError, OSError, ResultsError) as error:
        tell(f"paper: {error}")
        return 1
    except KeyboardInterrupt:
        resumed = f"--cache {options.cache}" if options.cache else "--cache, which this run had not"
        tell(f"paper: interrupted; {path} holds what was finished; to go on, give {resumed}")
        return 130
    tell(f"paper: {docs / 'paper.md'}")
    return 1 if found.failures() else 0


def measure(options: argparse.Namespace, path: Path) -> Results:
    """Run everything that ``options`` ask for; what is known after each model is in ``path``."""
    zoo = [entry.name for entry in entries() if entry.framework == "mxnet"]
    usual = QUICK if options.quick else GRANULARITIES
    settings = Settings(
        models=tuple(options.models or zoo),
        runtimes=tuple(dict.fromkeys(options.runtimes)),
        granularities=_ordered(options.granularities or usual),
        rule=QUICK_RULE if options.quick else RULE,
        threads=options.threads,
        quick=options.quick,
        retry=options.retry,
    )
    before = None
    with suppress(ResultsError):
        before = results.read(path)
    with ExitStack() as stack:
        cache = options.cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        benches = stack.enter_context(Benches(cache, settings))
        evaluation = Evaluation(settings, benches)
        found = evaluation.run(tell, lambda so_far: results.write(so_far, path))
        found = dated(found, before, measured=evaluation.measured_anything)
        results.write(found, path)
    return results.read(path)


def publish(found: Results, docs: Path) -> None:
    """Write the page and its figures."""
    page.write(found, figures.draw(found, docs / "figures"), docs / "paper.md")


def _ordered(granularities: Sequence[str]) -> tuple[str, ...]:
    """Numbers ascending, then ``executed``; what is neither stays, to be refused by name."""
    numbers = sorted({cut for cut in granularities if cut.isdecimal()}, key=int)
    return (*numbers, *dict.fromkeys(cut for cut in granularities if not cut.isdecimal()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", help="zoo names or files; default: all from MXNet")
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES))
    parser.add_argument("--granularities", nargs="+", help="numbers of layers, and executed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="a folder that is kept, to go on from later")
    parser.add_argument("--retry", action="store_true", help="measure again what failed before")
    parser.add_argument("--quick", action="store_true", help="see whether all works: build/paper/")
    parser.add_argument("--write-only", action="store_true", help="write the page, measure nothing")
    parser.add_argument("--results", type=Path, help="file of raw results")
    parser.add_argument("--docs", type=Path, help="folder of the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
