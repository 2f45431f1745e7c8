"""How accurate are estimates of PyTorch programs? Inference and training steps beside real ones.

Writes docs/torch.md (its figures) and benchmarks/results/torch.json.

    .venv/bin/python benchmarks/torch_steps.py --minutes 30

For one and two threads, and for two batch sizes, each workload of the zoo and of torch_unseen.py is
recorded, its bricks are measured, and real steps are run in turn with them, in one process. Each
workload is kept at once; the next call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks import Bench, BricksError, ModelComparison
from bricks.graph.model import Model
from bricks.graph.tensor import TensorType
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import percent
from bricks.samples.measurement import Measurement
from bricks.samples.statistics import median
from bricks.studies.inference.result import repeat_error
from bricks.zoo import programs

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "torch.json"
PAGE = ROOT / "docs" / "torch.md"
CACHE = ROOT / "cache" / "torch"
UNSEEN = "benchmarks/torch_unseen.py"


ZOO, OTHERS = "zoo", "unseen"

UNSEEN_FUNCTIONS = (
    "unet_instance", "unet_instance_training", "vit_dropout", "vit_dropout_training", "lstm_tagger",
    "lstm_tagger_training", "dlrm_multi_hot", "dlrm_multi_hot_training", "separable_cnn",
    "separable_cnn_training",
)  # fmt: skip

RULE = StopRule(precision=0.02, max_rounds=12)


@dataclass(frozen=True, slots=True)
class Row:
    """A workload beside its real steps, in microseconds; ``error`` says why there is no figure."""

    workload: str
    group: str
    kind: str | None = None
    batch: int | None = None
    calls: int | None = None
    bricks: int | None = None
    measured_us: float | None = None
    estimate_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    ratio: float | None = None
    noise: float | None = None
    around_share: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """All workloads with one number of threads and one multiple of their batch sizes."""

    threads: int
    times: int
    rows: list[Row] = field(default_factory=list)
    costs: dict[str, dict[str, float]] = field(default_factory=dict)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--workloads", nargs="+", help="Only these.")
    parser.add_argument("--minutes", type=float, help="Begin no workload after this time.")
    parser.add_argument("--runtime", default="torch")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    parser.add_argument(
        "--by-workload", action="store_true", help="Only print each workload's row."
    )
    arguments = parser.parse_args(words)
    cases = _load(arguments.raw)
    if arguments.by_workload:
        print(_by_workload(cases))
        return
    if not arguments.pages:
        deadline = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
        for threads in arguments.threads:
            for times in arguments.times:
                case = cases.setdefault((threads, times), Case(threads, times))
                _measure(case, cases, arguments, deadline)
    _write(cases, arguments.page)


def _named(only: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Each workload's name and group."""
    names = [(entry.name, ZOO) for entry in programs()]
    names += [(f"{UNSEEN}:{function}", OTHERS) for function in UNSEEN_FUNCTIONS]
    return (each for each in names if not only or each[0].rpartition(":")[2] in only)


def _measure(
    case: Case,
    cases: dict[tuple[int, int], Case],
    arguments: argparse.Namespace,
    deadline: float | None,
) -> None:
    folder = arguments.cache / f"{case.threads}-threads-batch-times-{case.times}"
    folder.mkdir(parents=True, exist_ok=True)
    tried = {row.workload for row in case.rows}
    conditions = Conditions(rule=RULE)
    with Bench(
        folder, runtime=arguments.runtime, threads=case.threads, conditions=conditions,
        published=False,
    ) as bench:  # fmt: skip
        models: dict[str, list[Model]] = {ZOO: [], OTHERS: []}
        for name, group in _named(arguments.workloads):
            late = deadline is not None and time.monotonic() >= deadline
            if late and name not in tried:
                continue
            try:
                model = _read(bench, name, case.times)
            except BricksError as error:
                if name not in tried:
                    case.rows.append(Row(name, group, error=str(error)))
                continue
            models[group].append(model)
            if name in tried:
                continue
            case.rows.append(_row(bench, name, group, model))
            print(case.threads, case.times, case.rows[-1], flush=True)
            _save(cases, arguments.raw, bench)
        for group, some in models.items():
            if some:
                summary = bench.compare(some).summary  # nothing is measured: all is there
                case.costs[group] = {
                    "bricks_wall_s": round(summary.bricks_wall_s, 2),
                    "models_wall_s": round(summary.models_wall_s, 2),
                    "bricks": summary.bricks,
                    "calls": summary.occurrences,
                }
        _save(cases, arguments.raw, bench)


def _read(bench: Bench, name: str, times: int) -> Model:
    model = bench.read(name)
    if times == 1:
        return model
    return bench.read(name, batch=times * _batch(model))


def _batch(model: Model) -> int:
    sizes = (t.shape[0] for _, t in model.inputs if isinstance(t, TensorType) and t.shape)
    return next(sizes)


def _row(bench: Bench, name: str, group: str, model: Model) -> Row:
    (row,) = bench.compare([model]).rows
    if not isinstance(row, ModelComparison):
        return Row(name, group, error=row.error)
    whole = bench.store.measurements.results(bench.target.key, [row.plan.digest])[row.plan.digest]
    assert isinstance(whole, Measurement)
    noise = repeat_error(whole)
    estimate = row.estimate
    around_s = sum(phase.around_s for phase in estimate.phases)
    return Row(
        workload=name,
        group=group,
        kind=row.plan.kind,
        batch=_batch(model),
        calls=row.plan.nodes,
        bricks=len(row.plan.keys),
        measured_us=_micro(row.measured_s.value),
        estimate_us=_micro(estimate.estimate_s),
        low_us=_micro(estimate.low_s),
        high_us=_micro(estimate.high_s),
        ratio=round(row.ratio, 4),
        noise=None if noise is None else round(noise, 4),
        around_share=round(around_s / estimate.estimate_s, 4),
    )


def _micro(latency_s: float) -> float:
    return float(f"{latency_s * 1e6:.4g}")


def _load(raw: Path) -> dict[tuple[int, int], Case]:
    if not raw.exists():
        return {}
    found = json.loads(raw.read_text(encoding="utf-8"))["cases"]
    cases = [
        Case(c["threads"], c["times"], [Row(**row) for row in c["rows"]], c["costs"]) for c in found
    ]
    return {(case.threads, case.times): case for case in cases}


def _save(cases: dict[tuple[int, int], Case], raw: Path, bench: Bench) -> None:
    facts: dict[str, Any] = {
        "system": bench.target.system.name,
        "runtime": bench.target.runtime.to_json(),
        "date": datetime.now(UTC).date().isoformat(),
        "cases": [asdict(case) for _, case in sorted(cases.items())],
    }
    raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _write(cases: dict[tuple[int, int], Case], page: Path) -> None:
    lines = [
        "| workloads | threads | batch | models | median error | 95th percentile | worst |"
        " geometric mean | inside | noise | measuring steps / bricks |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    pooled: dict[str, list[Row]] = {ZOO: [], OTHERS: []}
    for _, case in sorted(cases.items()):
        for group in (ZOO, OTHERS):
            rows = [row for row in case.rows if row.group == group and row.ratio is not None]
            if not rows:
                continue
            pooled[group] += rows
            cost = case.costs.get(group)
            paid = "–" if cost is None else f"{cost['models_wall_s'] / cost['bricks_wall_s']:.1f}"
            lines.append(_line(group, str(case.threads), f"×{case.times}", rows, paid))
    for group, rows in pooled.items():
        if rows:
            lines.append(_line(f"**{group}, all**", "", "", rows, ""))
    failed = [row for _, case in sorted(cases.items()) for row in case.rows if row.error]
    lines += ["", *(f"- {row.workload}: {row.error}" for row in failed)]
    put(page, __file__, {"steps": "\n".join(lines)})


def _line(group: str, threads: str, batch: str, rows: Sequence[Row], paid: str) -> str:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    inside = [
        row.low_us <= row.measured_us <= row.high_us
        for row in rows
        if row.low_us is not None and row.measured_us is not None and row.high_us is not None
    ]
    noises = [row.noise for row in rows if row.noise is not None]
    p95 = errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)]
    cells = (
        group, threads, batch, str(len(rows)), percent(median(errors)), percent(p95),
        percent(errors[-1]), f"{geometric_mean(ratios):.3f}",
        percent(sum(inside) / len(inside), 0), percent(median(noises)), paid,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _by_workload(cases: dict[tuple[int, int], Case]) -> str:
    lines = []
    for (threads, times), case in sorted(cases.items()):
        for row in sorted(case.rows, key=lambda row: -abs((row.ratio or 1) - 1)):
            told = row.error or (
                f"{row.ratio:.3f} of {row.measured_us:.0f} µs, {row.calls} calls,"
                f" {row.bricks} bricks, around {row.around_share:.1%}, noise {row.noise}"
            )
            lines.append(f"{threads}t ×{times} {row.workload.rpartition(':')[2]}: {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
