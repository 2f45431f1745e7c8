"""Operators and networks over runtimes, for people: tables, lines, and a page with heat maps.

Must not compute what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from bricks.errors import printable
from bricks.report.columns import NOTHING, Cells, shown
from bricks.report.heat_image import heat_image
from bricks.report.page import style, template
from bricks.report.tables import percent, seconds
from bricks.samples.evaluation import ComparedOutput, Divergence
from bricks.studies.numerics.results import (
    Accuracy,
    Form,
    Gradients,
    NetworkResult,
    OperatorComparison,
    OperatorLatency,
    OperatorResult,
    OperatorRun,
)
from bricks.units.facts import Missing


def operator_table(found: OperatorComparison) -> Table:
    """A row for each operator and runtime that ran it; a column for what any of them has."""
    ran = [(result.name, run) for result in found.operators for run in result.runs if run.ran]
    heads = (
        "latency", "±", "GFLOP/s", "GB/s", "of peak", "L2 error", "L∞ error", "results", "gradient",
    )  # fmt: skip
    return _filled(
        ("operator", "runtime"),
        heads,
        [((name, run.runtime), _cells(run)) for name, run in ran],
    )


def _filled(
    names: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> Table:
    """A table of rows of texts, under ``names``, and of cells, without columns of dashes alone."""
    kept = [k for k in range(len(heads)) if any(cells[k] != NOTHING for _, cells in rows)]
    return shown(
        Cells(
            titles=(*names, *(heads[k] for k in kept)),
            rows=tuple(
                (*map(printable, texts), *(cells[k] for k in kept)) for texts, cells in rows
            ),
            left=(*(True for _ in names), *(False for _ in kept)),
        )
    )


def _cells(run: OperatorRun) -> tuple[str, ...]:
    return (*_latency_cells(run.latency), *_accuracy_cells(run.accuracy))


def _latency_cells(latency: OperatorLatency | Missing) -> tuple[str, ...]:
    if isinstance(latency, Missing):
        return (NOTHING,) * 5
    latency_s = latency.latency_s
    share = percent(latency.peak_share, 0)
    return (
        seconds(latency_s.value),
        percent(latency_s.relative) if latency_s.value > 0 else NOTHING,
        _giga(latency.flops_per_s),
        _giga(latency.bytes_per_s),
        share if latency.bound is None else f"{share} {latency.bound}",
    )


def _accuracy_cells(accuracy: Accuracy | Missing) -> tuple[str, ...]:
    if isinstance(accuracy, Missing):
        return (NOTHING,) * 4
    worst = accuracy.worst
    norms = None if worst is None else worst.norms
    return (
        *(
            (_error(norms.l2_relative, norms.l2), _error(norms.linf_relative, norms.linf))
            if norms is not None
            else (NOTHING, NOTHING)
        ),
        f"{accuracy.evaluation.distinct} of {accuracy.evaluation.repeats}",
        _gradient(accuracy.gradients),
    )


def _gradient(gradients: Gradients | Missing) -> str:
    if isinstance(gradients, Missing):
        return NOTHING
    if gradients.first_wrong is not None:
        return f"wrong, {percent(gradients.first_wrong.relative_error)}"
    return _error(max((check.relative_error for check in gradients.checked), default=0.0), 0.0)


def _error(relative: float | None, absolute: float) -> str:
    """A relative error; the absolute one where the reference is zero."""
    return f"{relative:.1e}" if relative is not None else f"{absolute:.1e} absolute"


def _giga(value: float | None) -> str:
    return NOTHING if value is None else f"{value / 1e9:.3g}"


# What a form other than the given one is; and how many operators a line names.
_FORMS = {
    Form.STANDARD: "ran the standard operators that these stand for, in the plain layout",
    Form.COUNTERPART: "ran its counterparts of ONNX's operators",
}
_MOST_NAMES = 3


def operator_lines(found: OperatorComparison) -> list[str]:
    """What ran in another form, and what is missing and why; one line for equal reasons."""
    lines: dict[str, list[str]] = {}
    for result in found.operators:
        for run in result.runs:
            for reason in (*_form(run), *_reasons(run)):
                # A reason that names the operator's node would be another one for each operator.
                lines.setdefault(f"{run.runtime}: {reason}", []).append(result.name)
    told = [f"{reason} ({_some(names)})" for reason, names in lines.items()]
    return ["", *told] if told else []


def _form(run: OperatorRun) -> list[str]:
    return [_FORMS[run.form]] if run.ran and run.form in _FORMS else []


def _some(names: Sequence[str]) -> str:
    """The first few of many names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    first = ", ".join(map(printable, names[:_MOST_NAMES] if more > 1 else names))
    return f"{first} and {more} more" if more > 1 else first


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


def network_table(found: Sequence[NetworkResult]) -> Table:
    """A row for each model and runtime that ran it: the output with the greatest error."""
    rows = []
    for result in found:
        for run in result.runs:
            if isinstance(run.accuracy, Missing):
                continue
            worst = run.accuracy.worst
            name = NOTHING if worst is None else worst.output
            norms = None if worst is None else worst.norms
            l1 = _error(norms.l1_relative, norms.l1) if norms is not None else NOTHING
            cells = (l1, *_accuracy_cells(run.accuracy))
            rows.append(((result.name, run.runtime, name), cells))
    heads = ("L1 error", "L2 error", "L∞ error", "results", "gradient")
    return _filled(("model", "runtime", "worst output"), heads, rows)


def network_lines(found: Sequence[NetworkResult]) -> list[str]:
    """Where models part from their reference, how runtimes differ, and what is missing."""
    lines: list[str] = []
    for result in found:
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
    worst = max(norms, key=lambda each: each.l2_relative or 0.0)
    return f"by {_error(worst.l2_relative, worst.l2)} (L2, relative)"


def operator_page(
    found: OperatorComparison,
    *,
    version: str,
    made: str,
) -> str:
    """The comparison as one page that needs no network; ``made`` is the time of its creation."""
    return template("operators.html.jinja").render(
        system=found.system,
        runtimes=[
            {
                "label": f"{each.target.runtime.backend} {each.target.runtime.version}",
                "threads": each.target.runtime.threads,
                "flops": _giga(each.peaks.flops_per_s),
                "bytes": _giga(each.peaks.bytes_per_s),
            }
            for each in found.runtimes
        ],
        operators=[_of_page(result) for result in found.operators],
        missing=found.missing,
        version=version,
        made=made,
        style=style(),
    )


def _of_page(result: OperatorResult) -> dict[str, Any]:
    """The template's variables of an operator."""
    work = result.work
    return {
        "name": result.name,
        "source": result.source,
        "gflop": NOTHING if work.flops is None else f"{work.flops / 1e9:.3g}",
        "megabytes": NOTHING if work.bytes is None else f"{work.bytes / 1e6:.3g}",
        "runs": [
            {
                "runtime": run.runtime,
                "cells": _cells(run),
                "reasons": [*_form(run), *_reasons(run)],
                "map": _map(run),
            }
            for run in result.runs
        ],
    }


def _map(run: OperatorRun) -> dict[str, Any] | None:
    """The heat map of the output with the greatest error; None where there is none."""
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
