"""How accurate are predictions of memory? The zoo next to processes that run its models.

    .venv/bin/python -m benchmarks memory
    .venv/bin/python -m benchmarks.memory           # which constants of a session fit best

Each model is predicted, and then measured in fresh processes that return freed memory. At batch 1
it is also measured with the C library's defaults, and with the weights in the model's own file.
Memory does not depend on timing, so other programs may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import summary
from benchmarks.markdown import table
from benchmarks.ratios import Ratios
from benchmarks.study import Benchmark, Options, Results, Run
from bricks import Bench, MemoryPeaks, Model
from bricks.compose.memory.peak import (
    NODE_BYTES,
    SESSION_BYTES,
    WEIGHT_BYTES,
    PeakMemory,
    session_size_bytes,
)
from bricks.compose.memory.weights import weight_memory
from bricks.report.tables import number, percent, size
from bricks.samples.statistics import median
from bricks.session import whole_models
from bricks.zoo import entries

# By batch, the number of processes that each model is measured in.
PROCESSES = {1: 3, 8: 1}

FAMILIES = {entry.name: entry.family for entry in entries()}
# Every second family, in the order of their names: constants were chosen on these.
FITTED = frozenset(sorted(set(FAMILIES.values()))[::2])

SHOWN = 10  # of the models that are predicted worst
TINY_BYTES = 32 << 20

# Peaks of a process in bytes: while it loads the model, and while it runs it.
Peaks = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Case:
    """A model at a batch size."""

    model: str
    batch: int

    @property
    def fitted(self) -> bool:
        """Whether constants were chosen on the model's family."""
        return FAMILIES[self.model] in FITTED


@dataclass(frozen=True, slots=True)
class Row:
    """The parts of a predicted peak, and peaks of processes that return freed memory.

    ``default`` is a process with the C library's defaults, ``inline`` one whose model has its
    weights in its own file. ``unknown`` names operators and values without a rule.
    """

    case: Case
    nodes: int
    weights: int
    weight_bytes: int
    activation_bytes: int
    workspace_bytes: int
    loading_bytes: int
    returned: tuple[Peaks, ...]
    default: Peaks | None = None
    inline: Peaks | None = None
    unknown: tuple[str, ...] = ()

    @property
    def needed_bytes(self) -> int:
        """The predicted peak without the session's own data."""
        memory_bytes = self.weight_bytes + self.activation_bytes
        return memory_bytes + self.workspace_bytes + self.loading_bytes

    @property
    def predicted_bytes(self) -> int:
        """The predicted peak, with today's constants."""
        return self.needed_bytes + session_size_bytes(self.nodes, self.weights)

    @property
    def measured_bytes(self) -> float:
        """The measured peak: the median of several processes."""
        return median([float(max(peaks)) for peaks in self.returned])

    @property
    def error(self) -> float:
        """Predicted over measured peak, minus one."""
        return self.predicted_bytes / self.measured_bytes - 1


def cases() -> list[Case]:
    """All models of the zoo at each batch size."""
    return [Case(name, batch) for batch in PROCESSES for name in FAMILIES]


def run(case: Case, run: Run) -> Row:
    """Predict the peak of a model, and measure it in fresh processes."""
    with run.bench("cache", threads=1) as bench:
        model = bench.read(case.model, batch=case.batch)
        predicted = whole_models.predict_memory(bench.workspace, model)
        assert isinstance(predicted, PeakMemory), predicted
        decomposition = bench.decompose(model)
        return Row(
            case,
            len(decomposition.plan.occurrences),
            weight_memory(decomposition.plan, decomposition.bricks).count,
            predicted.weight_bytes,
            predicted.activation_bytes,
            predicted.workspace_bytes,
            predicted.loading_bytes,
            tuple(_peaks(bench, model) for _ in range(PROCESSES[case.batch])),
            _peaks(bench, model, keeps_freed=True) if case.batch == 1 else None,
            _peaks(bench, model, inline=True) if case.batch == 1 else None,
            tuple(predicted.unknown),
        )


def _peaks(bench: Bench, model: Model, **how: bool) -> Peaks:
    peaks: MemoryPeaks = whole_models.measure_memory(bench.workspace, model, **how)
    return peaks.loading_bytes, peaks.running_bytes


def fit(rows: Sequence[Row]) -> str:
    """The constants of a session that make relative errors of the fitted families smallest.

    Their sum, not that of their squares: few models with large errors should not decide.
    """
    chosen = [row for row in rows if row.case.fitted]
    features = np.array([[1.0, row.nodes, row.weights] for row in chosen])
    missing = np.array([row.measured_bytes - row.needed_bytes for row in chosen])
    scale = 1 / np.array([row.measured_bytes for row in chosen])
    weights = scale.copy()
    for _ in range(100):  # least squares, reweighted until they are least absolute errors
        found = np.linalg.lstsq(features * weights[:, None], missing * weights, rcond=None)[0]
        off = np.abs(features @ found - missing) * scale
        weights = scale / np.sqrt(np.maximum(off, 1e-4))
    names = ("SESSION_BYTES", "NODE_BYTES", "WEIGHT_BYTES")
    return "\n".join(f"{name} = {value:,.0f}" for name, value in zip(names, found, strict=True))


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables of errors, and the figures in the text."""
    rows = results.rows
    first = [row for row in rows if row.case.batch == 1]
    spreads = [max(map(max, row.returned)) / min(map(max, row.returned)) - 1 for row in first]
    tiny = [row for row in first if row.measured_bytes < TINY_BYTES]
    failed = sorted({each.case.model for each in results.failed})
    return {
        "date": results.about.date,
        "system": results.about.system,
        "runtime": results.about.runtime,
        "errors": _errors(rows),
        "models": str(len({row.case.model for row in rows})),
        "zoo": str(len(FAMILIES)),
        "left_out": f" ({', '.join(failed)} failed)" if failed else "",
        "spread": percent(median(spreads), 2),
        **_variants(first),
        "session": f"{size(SESSION_BYTES)} for a session, {size(NODE_BYTES)} for each node,"
        f" {size(WEIGHT_BYTES)} for each weight",
        "fitted": str(len(FITTED)),
        "families": str(len(set(FAMILIES.values()))),
        "tiny": str(len(tiny)),
        "tiny_share": percent(
            median([1 - row.needed_bytes / row.predicted_bytes for row in tiny]), 0
        ),
        "worst": _worst(rows),
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """Peaks at all batch sizes together; they have no interval."""
    return summary.row("memory", Ratios(tuple(1 + row.error for row in results.rows)))


def _variants(rows: Iterable[Row]) -> dict[str, str]:
    """Peaks with the C library's defaults and with inline weights, over those without."""
    default = [(max(row.default), row) for row in rows if row.default is not None]
    inline = [max(row.inline) / row.measured_bytes for row in rows if row.inline is not None]
    shares = [peak_bytes / row.measured_bytes for peak_bytes, row in default]
    errors = [abs(row.predicted_bytes / peak_bytes - 1) for peak_bytes, row in default]
    return {
        "default_median": percent(median(shares), 0),
        "default_p95": percent(_p95(shares), 0),
        "default_error": percent(median(errors), 0),
        "inline_median": percent(median(inline), 0),
        "inline_p95": percent(_p95(inline), 0),
    }


def _errors(rows: Sequence[Row]) -> str:
    groups: dict[str, Callable[[Row], bool]] = {
        "families that no constant was fitted to": lambda row: not row.case.fitted,
        "fitted families": lambda row: row.case.fitted,
        "all": lambda row: True,
    }
    lines = []
    for title, belongs in groups.items():
        for batch in PROCESSES:
            chosen = [row for row in rows if row.case.batch == batch and belongs(row)]
            ratios = Ratios(tuple(1 + row.error for row in chosen))
            lines.append([
                f"{title}, batch {batch}", str(len(chosen)), percent(ratios.median_error),
                percent(_p95(ratios.errors)), percent(ratios.worst_error),
                number(ratios.geomean, 3),
            ])  # fmt: skip
    head = ["", "models", "median error", "95th percentile", "worst", "geometric mean"]
    return table(head, lines)


def _worst(rows: Iterable[Row]) -> str:
    """The models that are predicted worst."""
    head = ["model", "batch", "predicted", "measured", "error", "from process to process"]
    lines = []
    for row in sorted(rows, key=lambda row: -abs(row.error))[:SHOWN]:
        peaks = [max(each) for each in row.returned]
        lines.append([
            row.case.model, str(row.case.batch), size(row.predicted_bytes),
            size(row.measured_bytes), f"{100 * row.error:+.1f} %",
            f"{size(min(peaks))} … {size(max(peaks))}",
        ])  # fmt: skip
    return table(head, lines)


def _p95(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.95, method="higher"))


BENCHMARKS = (
    Benchmark("memory", "memory.md", Row, cases, run, parts, others={summary.PAGE: summed_up}),
)


if __name__ == "__main__":
    print(fit(BENCHMARKS[0].kept(Options().results)[0].rows))
