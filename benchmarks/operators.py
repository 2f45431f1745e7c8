"""How fast and how exactly do runtimes compute operators? DeepBench's, over all runtimes here.

    .venv/bin/python -m benchmarks operators

Compares the operators over all installed runtimes, as ``bricks validate operators`` does,
with one thread.
Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import paragraphs, table
from benchmarks.study import Benchmark, Results, Run
from bricks.backends import describe, names
from bricks.errors import BackendError
from bricks.report.tables import percent, seconds
from bricks.samples.statistics import median
from bricks.studies.numerics.comparison import compare_operators
from bricks.studies.numerics.operators import deepbench
from bricks.units.facts import facts

RUNTIMES = ("onnxruntime", "openvino", "mxnet", "torch")


@dataclass(frozen=True, slots=True)
class Case:
    """An operator of DeepBench, with a number of threads."""

    operator: str
    threads: int = 1


@dataclass(frozen=True, slots=True)
class RuntimeRow:
    """An operator in one runtime; None where it lacks a figure, for one of the ``reasons``.

    ``l2_relative`` is the greatest relative L2 error of an output, ``distinct`` the number of
    different results of repeated runs, ``gradient_error`` the greatest relative one.
    """

    runtime: str
    latency_s: float | None
    low_s: float | None
    high_s: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    peak_share: float | None
    l2_relative: float | None
    distinct: int | None
    gradient_error: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """An operator's work, and its figures in every runtime."""

    case: Case
    flops: int | None
    bytes: int | None
    runtimes: tuple[RuntimeRow, ...]


def cases() -> list[Case]:
    """All operators."""
    return [Case(operator.name) for operator in deepbench()]


def run(case: Case, run: Run) -> Row:
    """Compare an operator over all installed runtimes; each call begins with another of them."""
    operators = {operator.name: operator for operator in deepbench()}
    first = list(operators).index(case.operator)
    with ExitStack() as opened:
        benches = [
            opened.enter_context(run.bench("cache", runtime=name, threads=case.threads))
            for name in RUNTIMES
            if _installed(name)
        ]
        turn = first % len(benches)
        workspaces = [bench.workspace for bench in benches[turn:] + benches[:turn]]
        found = compare_operators([operators[case.operator]], workspaces)
    return row_of(case, facts(found.operators[0]))


def _installed(name: str) -> bool:
    if name not in names():
        return False
    try:
        describe(name)
    except BackendError as error:
        print(f"{name} is left out: {error}")
        return False
    return True


def row_of(case: Case, operator: Mapping[str, Any]) -> Row:
    """The row of an operator from its facts, as ``bricks validate operators --json`` has them."""
    runtimes = tuple(map(_runtime_row, operator["runtimes"]))
    return Row(case, operator["flops"], operator["bytes"], runtimes)


def _runtime_row(runtime: Mapping[str, Any]) -> RuntimeRow:
    accuracy = runtime["accuracy"] or {"outputs": [], "reason": None}
    outputs = accuracy["outputs"]
    errors = [output["norms"]["l2_relative"] for output in outputs if output["norms"] is not None]
    reasons = [runtime["error"], runtime["accuracy_error"], accuracy["reason"]]
    reasons += [output["reason"] for output in outputs]
    gradients = accuracy.get("gradients") or {}
    return RuntimeRow(
        runtime["runtime"],
        runtime["latency_s"],
        runtime["low_s"],
        runtime["high_s"],
        runtime["flops_per_s"],
        runtime["bytes_per_s"],
        runtime["peak_share"],
        max((error for error in errors if error is not None), default=None),
        accuracy.get("distinct"),
        gradients.get("max_relative_error"),
        tuple(dict.fromkeys(reason for reason in reasons if reason)),
    )


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of all operators, and the figures of the levels that they measure."""
    runtimes = results.about.runtimes
    lines = []
    lacking: dict[str, list[str]] = {}
    for row in results.rows:
        of = {each.runtime: each for each in row.runtimes}
        lines.append([row.case.operator, *(_cell(of[name]) for name in runtimes)])
        for name in runtimes:
            for reason in of[name].reasons:
                lacking.setdefault(f"{name}: {reason}", []).append(row.case.operator)
    about = (
        f"{results.rows[0].case.threads} thread, {results.about.system}"
        " (`benchmarks/operators.py`): latency, GFLOP/s, relative L2 error."
    )
    heads = [f"{name} {version}" for name, version in runtimes.items()]
    notes = "\n".join(f"- {reason} ({', '.join(of)})" for reason, of in lacking.items())
    body = paragraphs(about, table(["operator", *heads], lines), notes)
    return {"operators": body, **_levels(results)}


def _cell(row: RuntimeRow) -> str:
    if row.latency_s is None:
        return "–"
    rate = "–" if row.flops_per_s is None else f"{row.flops_per_s / 1e9:.3g}"
    error = "–" if row.l2_relative is None else f"{row.l2_relative:.0e}"
    return f"{seconds(row.latency_s)}, {rate}, {error}"


def _levels(results: Results[Row]) -> dict[str, str]:
    """The figure of each metric of level 0."""
    rows = [each for row in results.rows for each in row.runtimes]
    latencies_s = list(_known(row.latency_s for row in rows))
    shares = list(_known(row.peak_share for row in rows))
    distinct = list(_known(row.distinct for row in rows))
    errors = list(_known(row.l2_relative for row in rows))
    gradients = list(_known(row.gradient_error for row in rows))
    return {
        "wall_clock": f"{seconds(min(latencies_s))} to {seconds(max(latencies_s))}",
        "rates": f"median {percent(median(shares), 0)} of the roofline" if shares else "–",
        "norms": f"relative L2 error at most {max(errors):.0e}" if errors else "–",
        "variance": f"{distinct.count(1)} of {len(distinct)} deterministic",
        "gradients": f"off by at most {max(gradients):.0e}" if gradients else "–",
    }


def _known(values: Iterable[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)


BENCHMARKS = (Benchmark("operators", "levels.md", Row, cases, run, parts),)
