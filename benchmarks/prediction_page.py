"""Renders the part of docs/performance.md about models of unseen families, from prediction.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np
from page_parts import ratios_of

from bricks.report.tables import number, percent

Facts = Mapping[str, Any]

_HALVES = {"first half": {0}, "second half": {1}, "all": {0, 1}}


def section(facts: Facts) -> list[str]:
    """The section; ``facts`` are those of prediction.py, by threads."""
    about = next(iter(facts.values()))["about"]
    return [
        "",
        "## Models of unseen families",
        "",
        "Errors of `bricks predict --no-measure` with all families in the cache but the model's"
        f" own: {_conclusion(facts)}. Written by `benchmarks/prediction.py` on {about['date']}, on"
        f" {about['system']} with {about['backend']} {about['version']}, from measurements of"
        f" protocol {about['protocol']}:",
        "",
        "    .venv/bin/python benchmarks/prediction.py --cache CACHE --threads 1",
        "",
        "Bricks shared with other families are measured: all of them (`full`), or those that"
        " `--effort balanced` would have measured. *all measured* is the error with measurements of"
        " the model's own bricks, too. Each estimate is for the [machine"
        " state](glossary.md#machine-state) in which the model was run. Families are split into"
        " halves, every second one in alphabetical order; features and constants of the predictor"
        " were chosen on the first half.",
        "",
        *_table(facts),
        "",
        "Other methods, with all families in the cache: *roofline* has rates for each kernel,"
        " fitted to the same bricks; *nearest brick* takes the brick of the same operator with the"
        " most similar attributes and sizes.",
        "",
        *_methods(facts),
    ]


def _conclusion(facts: Facts) -> str:
    parts = []
    for threads, found in facts.items():
        rows = found["efforts"]["full"]
        errors = _errors(rows)
        parts.append(
            f"{percent(float(np.median(errors)))} in the median and"
            f" {percent(float(np.quantile(errors, 0.95)))} at the 95th percentile (geometric mean"
            f" of ratios {number(geometric_mean(ratios_of(rows)), 3)}) with {threads}"
            f" thread{'s' if threads != '1' else ''}"
        )
    return ", ".join(parts)


def _table(facts: Facts) -> Iterator[str]:
    yield (
        "| threads | bricks measured | families | models | median error | 95th percentile | worst"
        " | geometric mean of ratios | inside the interval | half the interval, median |"
    )
    yield "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for threads, found in facts.items():
        half = found["halves"]
        for effort, rows in found["efforts"].items():
            for title, chosen in _HALVES.items():
                mine = [row for row in rows if half[row["family"]] in chosen]
                count = f"{effort}: {found['measured'][effort]}"
                yield f"| {' | '.join([threads, count, title, *_figures(mine)])} |"
        cells = [threads, "all measured", "all", *_figures(found["all measured"])]
        yield f"| {' | '.join(cells)} |"


def _figures(rows: Sequence[Facts]) -> list[str]:
    errors = _errors(rows)
    inside = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows]
    widths = [(row["high_s"] - row["low_s"]) / 2 / row["estimate_s"] for row in rows]
    return [
        str(len(rows)),
        percent(float(np.median(errors))),
        percent(float(np.quantile(errors, 0.95))),
        percent(max(errors)),
        number(geometric_mean(ratios_of(rows)), 3),
        percent(sum(inside) / len(inside), 0),
        percent(float(np.median(widths))),
    ]


def _methods(facts: Facts) -> Iterator[str]:
    yield (
        "| threads | method | bricks | median error | models: median error | 95th percentile |"
        " geometric mean of ratios | inside the interval |"
    )
    yield "|--:|---|--:|--:|--:|--:|--:|--:|"
    for threads, found in facts.items():
        for name, method in found["methods"].items():
            cells = [threads, name, str(method["bricks"]), percent(method["brick_error"])]
            cells += [percent(method["median"]), percent(method["p95"])]
            cells.append(number(_method_mean(found, name), 3))
            yield f"| {' | '.join([*cells, percent(method['inside'], 0)])} |"


def _method_mean(found: Facts, name: str) -> float | None:
    """The geometric mean of a method's ratios; None where earlier results do not tell it.

    The learned method has the rows of effort ``full`` behind it, so of that it is always known.
    """
    if name == "learned":
        return geometric_mean(ratios_of(found["efforts"]["full"]))
    mean: float | None = found["methods"][name].get("geomean_ratio")
    return mean


def _errors(rows: Sequence[Facts]) -> list[float]:
    return [abs(ratio - 1) for ratio in ratios_of(rows)]
