"""How accurate are estimates of PyTorch programs? Inference and training steps next to real ones.

    .venv/bin/python -m benchmarks torch_steps --minutes 30

For one and two threads, and for two batch sizes, each workload of the zoo and of torch_unseen.py is
recorded, its bricks are measured, and real steps are run in turn with them, in one process. Run
nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, microseconds
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, BricksError, ModelComparison
from bricks.graph.model import Model
from bricks.graph.types import TensorType
from bricks.report.tables import percent
from bricks.samples.measurement import Measurement
from bricks.samples.statistics import median
from bricks.studies.inference.result import repeat_error
from bricks.zoo import programs

UNSEEN = "benchmarks/torch_unseen.py"
UNSEEN_FUNCTIONS = tuple(
    f"{UNSEEN}:{name}{step}"
    for name in ("unet_instance", "vit_dropout", "lstm_tagger", "dlrm_multi_hot", "separable_cnn")
    for step in ("", "_training")
)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload with a number of threads and a multiple of its own batch size."""

    workload: str
    threads: int
    times: int

    @property
    def group(self) -> str:
        """Whether the zoo has it, on which estimates were improved, or nothing was tuned to it."""
        return "unseen" if self.workload.startswith(UNSEEN) else "zoo"


@dataclass(frozen=True, slots=True)
class Row:
    """A workload next to its real steps, in microseconds.

    ``noise`` is the error of the steps against themselves, ``overhead_share`` the share of call
    overhead in the estimate. Measuring the steps and measuring the bricks took ``steps_wall_s``
    and ``bricks_wall_s``; bricks of several workloads count in the row of each.
    """

    case: Case
    kind: str
    batch: int
    calls: int
    bricks: int
    measured_us: float
    estimate_us: float
    low_us: float
    high_us: float
    ratio: float
    noise: float | None
    overhead_share: float
    steps_wall_s: float | None = None
    bricks_wall_s: float | None = None


def cases() -> list[Case]:
    """All workloads, for one and two threads and two batch sizes."""
    names = [*(entry.name for entry in programs()), *UNSEEN_FUNCTIONS]
    return [Case(name, threads, times) for threads in (1, 2) for times in (1, 2) for name in names]


def run(case: Case, run: Run) -> Row:
    """Record a workload, and compare it with its real steps."""
    cache = f"{case.threads}-threads-batch-times-{case.times}"
    with run.bench(cache, runtime="torch", threads=case.threads) as bench:
        model = bench.read(case.workload)
        if case.times > 1:
            model = bench.read(case.workload, batch=case.times * _batch(model))
        return _row(bench, case, model)


def _batch(model: Model) -> int:
    sizes = (t.shape[0] for _, t in model.inputs if isinstance(t, TensorType) and t.shape)
    return next(sizes)


def _row(bench: Bench, case: Case, model: Model) -> Row:
    comparison = bench.compare([model])
    (row,) = comparison.rows
    if not isinstance(row, ModelComparison):
        raise BricksError(row.error)
    whole = bench.store.measurements.results(bench.target.key, [row.plan.digest])[row.plan.digest]
    assert isinstance(whole, Measurement)
    noise, estimate = repeat_error(whole), row.estimate
    overhead_s = sum(phase.overhead_s for phase in estimate.phases)
    return Row(
        case,
        row.plan.kind,
        _batch(model),
        row.plan.nodes,
        len(row.plan.keys),
        microseconds(row.measured_s.value),
        microseconds(estimate.estimate_s),
        microseconds(estimate.low_s),
        microseconds(estimate.high_s),
        round(row.ratio, 4),
        None if noise is None else round(noise, 4),
        round(overhead_s / estimate.estimate_s, 4),
        round(comparison.summary.models_wall_s, 2),
        round(comparison.summary.bricks_wall_s, 2),
    )


def parts(results: Results[Row]) -> dict[str, str]:
    """A row of errors for each group, number of threads and batch size, and one for each group."""
    groups: dict[tuple[str, int, int], list[Row]] = {}
    together: dict[str, list[Row]] = {"zoo": [], "unseen": []}
    for row in sorted(results.rows, key=lambda row: (row.case.threads, row.case.times)):
        case = row.case
        groups.setdefault((case.group, case.threads, case.times), []).append(row)
        together[case.group].append(row)
    lines = [
        _cells(group, str(threads), f"×{times}", rows, _cost(rows))
        for (group, threads, times), rows in groups.items()
    ]
    lines += [
        _cells(f"**{group}, all**", "", "", rows, "") for group, rows in together.items() if rows
    ]
    head = ["workloads", "threads", "batch", "models", "median error", "95th percentile", "worst",
            "geometric mean", "inside", "noise", "measuring steps / bricks"]  # fmt: skip
    failed = "\n".join(f"- {each.case.workload}: {each.error}" for each in results.failed)
    return {"steps": paragraphs(table(head, lines), failed)}


def summed_up(results: Results[Row]) -> dict[str, str]:
    """All steps together."""
    ratios = Ratios(tuple(row.ratio for row in results.rows))
    inside = (row.low_us <= row.measured_us <= row.high_us for row in results.rows)
    return summary.row("torch", ratios, inside)


def _cost(rows: Sequence[Row]) -> str:
    """The wall time of measuring steps over that of measuring their bricks."""
    steps_s = sum(row.steps_wall_s or 0.0 for row in rows)
    bricks_s = sum(row.bricks_wall_s or 0.0 for row in rows)
    return f"{steps_s / bricks_s:.1f}" if bricks_s else "–"


def _cells(group: str, threads: str, batch: str, rows: Sequence[Row], cost: str) -> list[str]:
    ratios = Ratios(tuple(row.ratio for row in rows))
    inside = sum(row.low_us <= row.measured_us <= row.high_us for row in rows)
    noises = [row.noise for row in rows if row.noise is not None]
    return [
        group, threads, batch, str(len(rows)), percent(ratios.median_error),
        percent(ratios.p95_error), percent(ratios.worst_error), f"{ratios.geomean:.3f}",
        percent(inside / len(rows), 0), percent(median(noises)), cost,
    ]  # fmt: skip


BENCHMARKS = (
    Benchmark("torch_steps", "torch.md", Row, cases, run, parts, others={summary.PAGE: summed_up}),
)
