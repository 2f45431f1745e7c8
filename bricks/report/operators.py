"""Operators and networks over runtimes, for people: tables, lines, and a page with heat maps.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.page import heat_image, render_page
from bricks.report.tables import DASH, Column, billions, part_column, percent, seconds, table_of
from bricks.report.words import names_text
from bricks.samples.evaluation import ComparedOutput, Divergence
from bricks.studies.numerics.results import (
    Accuracy,
    Form,
    Gradients,
    NetworkResult,
    NetworkRun,
    OperatorComparison,
    OperatorLatency,
    OperatorResult,
    OperatorRun,
)
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from rich.table import Table

# A row: the name of an operator or a model, and its run with one runtime.
_OperatorRow = tuple[str, OperatorRun]
_NetworkRow = tuple[str, NetworkRun]


def operator_table(comparison: OperatorComparison) -> Table:
    """A row for each operator and each runtime that ran it; only columns with values."""
    ran = [(result.name, run) for result in comparison.operators for run in result.runs if run.ran]
    return table_of(ran, [*_NAMES, *_QUANTITIES])


_NAMES: Sequence[Column[_OperatorRow]] = (
    Column("operator", lambda row: row[0], left=True),
    Column("runtime", lambda row: row[1].runtime, left=True),
)


def _latency(row: _OperatorRow) -> OperatorLatency | Missing:
    return row[1].latency


def _accuracy(row: _OperatorRow | _NetworkRow) -> Accuracy | Missing:
    return row[1].accuracy


def _error_text(accuracy: Accuracy, norm: str) -> str | None:
    """The error of the worst output in ``norm`` (``l1``, ``l2``, ``linf``)."""
    norms = None if accuracy.worst is None else accuracy.worst.norms
    if norms is None:
        return None
    return _error(getattr(norms, f"{norm}_relative"), getattr(norms, norm))


def _billions(value: float | None) -> str | None:
    return None if value is None else billions(value)


def _peak_share(latency: OperatorLatency) -> str | None:
    if latency.peak_share is None:
        return latency.bound
    share = percent(latency.peak_share, 0)
    return share if latency.bound is None else f"{share} {latency.bound}"


_ACCURACIES = (
    part_column("L2 error", _accuracy, lambda accuracy: _error_text(accuracy, "l2")),
    part_column("L∞ error", _accuracy, lambda accuracy: _error_text(accuracy, "linf")),
    part_column(
        "results",
        _accuracy,
        lambda accuracy: f"{accuracy.evaluation.distinct} of {accuracy.evaluation.repeats}",
    ),
    part_column("gradient", _accuracy, lambda accuracy: _gradient(accuracy.gradients)),
)
_QUANTITIES: Sequence[Column[_OperatorRow]] = (
    part_column("latency", _latency, lambda latency: seconds(latency.latency_s.value)),
    part_column(
        "±",
        _latency,
        lambda of: percent(of.latency_s.relative) if of.latency_s.value > 0 else None,
    ),
    part_column("GFLOP/s", _latency, lambda latency: _billions(latency.flops_per_s)),
    part_column("GB/s", _latency, lambda latency: _billions(latency.bytes_per_s)),
    part_column("of peak", _latency, _peak_share),
    *_ACCURACIES,
)


def _gradient(gradients: Gradients | Missing) -> str | None:
    if isinstance(gradients, Missing):
        return None
    if gradients.first_wrong is not None:
        return f"wrong, {percent(gradients.first_wrong.relative_error)}"
    return _error(gradients.max_relative_error, 0.0)


def _error(relative: float | None, absolute: float) -> str:
    """A relative error; the absolute one where the reference is zero."""
    return f"{relative:.1e}" if relative is not None else f"{absolute:.1e} absolute"


# What a form other than the given one is; and how many operators a line names.
_FORMS = {
    Form.STANDARD: "ran the standard operators that these stand for, in the plain layout",
    Form.COUNTERPART: "ran its counterparts of ONNX's operators",
}
_MOST_NAMES = 3


def operator_lines(comparison: OperatorComparison) -> list[str]:
    """Lines about operators that ran in another form, or are missing, grouped by reason."""
    lines: dict[str, list[str]] = {}
    for result in comparison.operators:
        for run in result.runs:
            for reason in (*_form(run), *_reasons(run)):
                # A reason that names the operator's node would be another one for each operator.
                lines.setdefault(f"{run.runtime}: {reason}", []).append(result.name)
    grouped = [
        f"{reason} ({names_text([*map(printable, names)], _MOST_NAMES)})"
        for reason, names in lines.items()
    ]
    return ["", *grouped] if grouped else []


def _form(run: OperatorRun) -> list[str]:
    return [_FORMS[run.form]] if run.ran and run.form in _FORMS else []


def _reasons(run: OperatorRun) -> list[str]:
    reasons = []
    if isinstance(run.latency, Missing):
        reasons.append(f"not measured: {run.latency.reason}")
    if isinstance(run.accuracy, Missing):
        if not isinstance(run.latency, Missing) or run.accuracy != run.latency:
            reasons.append(f"not evaluated: {run.accuracy.reason}")
    else:
        reasons += _accuracy_reasons(run.accuracy)
    return reasons


def _accuracy_reasons(accuracy: Accuracy) -> list[str]:
    if isinstance(accuracy.reference, Missing):
        return [accuracy.reference.reason]
    reasons = [
        f"output {output.output}: {output.reason}"
        for output in accuracy.evaluation.outputs
        if output.reason is not None
    ]
    wrong = accuracy.gradients.first_wrong if isinstance(accuracy.gradients, Gradients) else None
    if wrong is not None:
        reasons.append(
            f"the gradient of {wrong.of} is wrong: {wrong.analytic:.6g} along a random direction,"
            f" by finite differences {wrong.numeric:.6g}"
        )
    return reasons


def network_table(results: Sequence[NetworkResult]) -> Table:
    """A row for each model and runtime that ran it: the output with the greatest error."""
    ran = [
        (result.name, run)
        for result in results
        for run in result.runs
        if not isinstance(run.accuracy, Missing)
    ]
    return table_of(ran, _NETWORK)


_NETWORK: Sequence[Column[_NetworkRow]] = (
    Column("model", lambda row: row[0], left=True),
    Column("runtime", lambda row: row[1].runtime, left=True),
    part_column(
        "worst output",
        _accuracy,
        lambda of: DASH if of.worst is None else of.worst.output,
        left=True,
    ),
    part_column("L1 error", _accuracy, lambda accuracy: _error_text(accuracy, "l1")),
    *_ACCURACIES,
)


def network_lines(results: Sequence[NetworkResult]) -> list[str]:
    """Lines about divergence from references, differences of runtimes, and missing results."""
    lines: list[str] = []
    for result in results:
        for run in result.runs:
            of = f"{result.name}, {run.runtime}"
            if isinstance(run.accuracy, Missing):
                lines.append(f"{of}: {run.accuracy.reason}")
                continue
            lines += [f"{of}: {reason}" for reason in _accuracy_reasons(run.accuracy)]
            if isinstance(run.divergence, Divergence):
                lines.append(f"{of}: {_divergence(run.divergence)}")
            elif run.divergence != run.accuracy.reference:
                lines.append(f"{of}: {run.divergence.reason}")
        lines += [
            f"{result.name}: {pair.other} differs from {pair.one} {_worst(pair.outputs)}"
            for pair in result.pairs
        ]
    return ["", *map(printable, lines)] if lines else []


def _divergence(divergence: Divergence) -> str:
    if not divergence.beyond:
        return f"all {divergence.compared} values agree with the reference"
    beyond = f"{divergence.beyond} of {divergence.compared} values are further from the reference"
    if divergence.first is None:
        return f"{beyond} than allowed"
    error = divergence.first.linf_relative
    far = divergence.first.reason or (
        "where that is zero" if error is None else f"by {error:.1e} of the greatest value"
    )
    return f"{beyond} than allowed; the first operator that errs is {divergence.first.node}, {far}"


def _worst(outputs: Sequence[ComparedOutput]) -> str:
    norms = [output.norms for output in outputs if output.norms is not None]
    missing = [output.reason for output in outputs if output.reason is not None]
    if missing:
        return f"in kind: {missing[0]}"
    worst = max(norms, key=lambda output: output.l2_relative or 0.0)
    return f"by {_error(worst.l2_relative, worst.l2)} (L2, relative)"


def operator_page(
    comparison: OperatorComparison,
    *,
    version: str,
    made: str,
) -> str:
    """The comparison as one page that needs no network; ``made`` is the time of its creation."""
    return render_page(
        "operators",
        system=comparison.system,
        runtimes=[
            {
                "label": f"{runtime.target.runtime.backend} {runtime.target.runtime.version}",
                "threads": runtime.target.runtime.threads,
                "flops": billions(runtime.peaks.flops_per_s),
                "bytes": billions(runtime.peaks.bytes_per_s),
            }
            for runtime in comparison.runtimes
        ],
        operators=[_of_page(result) for result in comparison.operators],
        missing=comparison.missing,
        version=version,
        made=made,
    )


def _of_page(result: OperatorResult) -> dict[str, Any]:
    work = result.work
    return {
        "name": result.name,
        "source": result.source,
        "gflop": billions(work.flops),
        "megabytes": DASH if work.bytes is None else f"{work.bytes / 1e6:.3g}",
        "runs": [
            {
                "runtime": run.runtime,
                "cells": [column.cell((result.name, run)) or DASH for column in _QUANTITIES],
                "reasons": [*_form(run), *_reasons(run)],
                "map": _map(run),
            }
            for run in result.runs
        ],
    }


def _map(run: OperatorRun) -> dict[str, Any] | None:
    worst = None if isinstance(run.accuracy, Missing) else run.accuracy.worst
    if worst is None or not worst.heat_map:
        return None
    largest = max(max(row) for row in worst.heat_map)
    return {
        "output": worst.output,
        "rows": len(worst.heat_map),
        "columns": len(worst.heat_map[0]),
        "largest": f"{largest:.1e}",
        "image": heat_image(worst.heat_map),
    }
