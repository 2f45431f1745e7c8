"""How often does ``bricks diff`` find a difference where there is none? Measures again and again.

    .venv/bin/python benchmarks/repeats.py

Each session measures the same models on the same target, in a process and a cache of its own. Every
two sessions are compared as if they were two targets; any difference found is a false alarm. Writes
the table in docs/diff.md. Takes ten minutes; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from page_parts import put

from bricks import Bench
from bricks.analysis.difference import Difference, difference
from bricks.analysis.target_data import TargetData
from bricks.analysis.target_diff import target_data
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import percent
from bricks.samples.statistics import median

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "diff.md"

MODELS = (
    "squeezenet", "mobilenet_v2", "shufflenet", "resnet18", "densenet121", "bert_mini", "vit_tiny",
    "efficientnet_b0", "inception_v2",
)  # fmt: skip
SESSIONS = 6
SLOWER = 0.03  # what --fail-on of the page's example says
WAYS = tuple((threads, precision) for threads in (1, 2) for precision in (0.01, 0.002))


def main() -> None:
    """Measure, compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        busy: list[float] = []
        sides: dict[tuple[int, float], list[TargetData]] = {way: [] for way in WAYS}
        for number in range(chosen.sessions):  # in turn, so that sessions of one kind are apart
            for threads, precision in WAYS:
                cache = Path(name) / f"{number}-{threads}-{precision}"
                conditions = Conditions(rule=StopRule(precision=precision))
                with Bench(
                    cache, runtime=chosen.runtime, threads=threads, conditions=conditions
                ) as bench:
                    done = bench.measure([bench.read(model) for model in chosen.models])
                    busy.append(done.foreign_cores or 0.0)
                    sides[threads, precision].append(_side(bench, number))
                    system, runtime = bench.target.system.name, bench.workspace.runtime
    about = (
        f"{system}, {runtime.backend} {runtime.version}, {datetime.now(UTC).date()}; others kept"
        f" {median(busy):.1f} cores busy meanwhile, at most {max(busy):.1f}"
    )
    lines = table({way: _pairs(of) for way, of in sides.items()}, about)
    put(chosen.page, __file__, {"repeats": "\n".join(lines)})


def _side(bench: Bench, number: int) -> TargetData:
    known = bench.store.plans.all(bench.target.key, bench.workspace.options.granularity)
    plans = {plan.digest: plan for plan, _ in known}
    return target_data(bench.store, f"session {number}", bench.target, plans, list(plans))


def _pairs(sides: Sequence[TargetData]) -> list[Difference]:
    return [difference(one, other, list(one.plans)) for one, other in combinations(sides, 2)]


def table(found: dict[tuple[int, float], list[Difference]], about: str) -> Iterator[str]:
    """A row for each way to measure."""
    yield (
        "| threads | `--precision` | pairs of sessions | bricks | a brick is told to differ |"
        " a model is | by more than 3 % | common to all bricks | models |"
    )
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for (threads, precision), pairs in found.items():
        bricks = sum(any(b.ratio.beyond_noise for b in d.bricks) for d in pairs)
        models = sum(any(m.ratio.beyond_noise for m in d.models) for d in pairs)
        failed = sum(bool(d.regressions(SLOWER)) for d in pairs)
        common = [_apart(d.common.ratio.value) for d in pairs if d.common is not None]
        ratios = [_apart(m.ratio.interval.value) for d in pairs for m in d.models]
        cells = (
            str(threads), f"{precision:g}", str(len(pairs)), str(len(pairs[0].bricks)),
            *(f"{n} times" for n in (bricks, models, failed)),
            *(f"{percent(median(of))}, at most {percent(max(of))}" for of in (common, ratios)),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"{about}. Nothing had changed between any two sessions. The last columns say how far apart"
        " they were: the median of all bricks' ratios, and estimates of models."
    )


def _apart(ratio: float) -> float:
    return math.expm1(abs(math.log(ratio)))


if __name__ == "__main__":
    main()
