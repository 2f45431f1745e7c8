"""Compare steps as CUDA graphs with their kernels.

    .venv/bin/python -m benchmarks gpu

A graph takes as long as its kernels, plus a launch and a while for each kernel. Both are fitted on
the programs of the two folds that a program is not in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.device_time import Case
from benchmarks.gpu.stepped import (
    HEAD,
    Answer,
    Stepped,
    device_rows,
    folds,
    stepped,
    stepped_of,
    summary,
)
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import digits, quantile
from benchmarks.study import Results, Run
from bricks.compose.device.launching import LaunchCosts, RunMode, device_run
from bricks.samples.statistics import median
from bricks.units.interval import Interval

_COVERED, _SHOWN = 0.95, 10
# Rounds of weighted least squares, which approach the least sum of absolute errors; relative errors
# below this are weighted as this one.
_ROUNDS, _LEAST_ERROR = 30, 0.005
# Tiny programs, which are fitted on like others, but are no models.
_PROBES = "probe_"


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A program's step as a CUDA graph, one by one; ``streams`` are those of its kernels.

    ``launch_s`` and ``kernel_s`` are costs of a launch and of each kernel, fitted on other folds.
    """

    case: Case
    fold: int
    kernels: int
    streams: int
    device_s: float
    step: Answer
    launch_s: float
    kernel_s: float


def cases() -> list[Case]:
    """The programs that ran as CUDA graphs, without probes."""
    return [of.case for of in _graphs() if not of.case.program.startswith(_PROBES)]


def _graphs() -> list[Stepped]:
    return [of for of in stepped() if of.raw.graph_s]


def run(case: Case, run: Run) -> GraphRow:
    """The graph of a program, with costs of the folds that it is not in."""
    of, fold = stepped_of(case), folds()[case.program]
    device, costs = device_rows(run.options.results)[case], _fitted(fold, run.options.results)
    kernels = of.kernels(device.estimate_s)
    free = [0.0] * len(kernels)
    step_s = device_run(of.measured.plan, free, kernels, costs.launching, RunMode.GRAPH).step_s
    half_s = device.error * device.estimate_s + costs.error * step_s
    return GraphRow(
        case,
        fold,
        sum(map(len, kernels)),
        len({each.stream for each in of.raw.step}),
        digits(device.estimate_s, 5),
        Answer.of(median(of.raw.graph_s), Interval.around(step_s, half_s)),
        digits(costs.launching.graph_launch_s.value, 3),
        digits(costs.launching.graph_gap_s.value, 3),
    )


@dataclass(frozen=True, slots=True)
class _Costs:
    """Costs of graphs, and the relative error of a step that these leave in 95 % of programs."""

    launching: LaunchCosts
    error: float


@cache
def _fitted(fold: int, results: Path) -> _Costs:
    """The launch and the seconds for each kernel with the least sum of absolute relative errors.

    Programs whose kernels run on several streams are left out.
    """
    known = [
        of
        for of in _graphs()
        if folds()[of.case.program] != fold and len({k.stream for k in of.raw.step}) == 1
    ]
    real_s = np.array([median(of.raw.graph_s) for of in known])
    device_s = np.array([of.raw.step_device_s for of in known])
    counts = np.array([sum(map(len, of.raw.replayed)) for of in known])
    rows = np.stack([np.ones(len(known)), counts - 1.0], axis=1) / real_s[:, None]
    rest, weights = (real_s - device_s) / real_s, np.ones(len(known))
    for _ in range(_ROUNDS):
        found = np.linalg.lstsq(rows * weights[:, None], rest * weights, rcond=None)[0]
        errors = np.abs(rows @ found - rest)
        weights = 1.0 / np.sqrt(np.maximum(errors, _LEAST_ERROR))
    launch, kernel = (Interval.exact(float(seconds)) for seconds in found)
    launching = LaunchCosts(graph_launch_s=launch, graph_gap_s=kernel)
    return _Costs(launching, quantile([float(error) for error in errors], _COVERED))


def parts(results: Results[GraphRow]) -> dict[str, str]:
    """Errors of all graphs, the worst ones, and the costs."""
    rows = results.rows
    return {"graphs": paragraphs(_errors(rows), _worst(rows)), "graph_costs": _costs(rows)}


def _errors(rows: Sequence[GraphRow]) -> str:
    one = [row.step for row in rows if row.streams == 1]
    lines = [summary("all", [row.step for row in rows]), summary("of one stream", one)]
    return table(HEAD, lines)


def _worst(rows: Sequence[GraphRow]) -> str:
    ordered = sorted(rows, key=lambda row: -abs(row.step.ratio - 1))[:_SHOWN]
    lines = [
        [
            row.case.program, row.case.session, str(row.kernels), str(row.streams),
            f"{row.device_s * 1e3:.3f}", f"{row.step.real_s * 1e3:.3f}", f"{row.step.ratio:.3f}",
        ]
        for row in ordered
    ]  # fmt: skip
    head = ["program", "file", "kernels", "streams", "device, ms", "graph, ms", "estimate / graph"]
    return table(head, lines, "ll")


def _costs(rows: Sequence[GraphRow]) -> str:
    found = {row.fold: row for row in rows}
    lines = [
        [str(fold + 1), f"{row.launch_s * 1e6:.1f}", f"{row.kernel_s * 1e6:.2f}"]
        for fold, row in sorted(found.items())
    ]
    return table(["fold", "launch, µs", "each kernel, µs"], lines)


BENCHMARKS = (Derived("graphs", PAGE, GraphRow, cases, run, parts),)
