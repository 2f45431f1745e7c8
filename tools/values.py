"""Random models whose time depends on values, compared with full runs: which estimates are off.

``make values`` runs this by hand on a quiet machine; it writes research/values.json, which
research/conformance.md shows. The models are those of ``value_models.py``. Must not know what is
estimated how.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from value_models import KINDS, value_model
from wild import PAGE, replace_section

from bricks import Bench
from bricks.studies.inference.result import ComparisonFailure, ModelComparison

FOUND = PAGE.with_name("values.json")
MARKS = ("<!-- values: written by tools/values.py -->", "<!-- /values -->")
# An estimate counts as wrong if the run is so far outside of its interval.
BEYOND = 1.2
_AT_ONCE = 34


def outside(row: dict[str, Any]) -> float:
    """By which factor the run is outside of the interval of its estimate; 1: it is inside."""
    took = row["measured_latency_s"]
    return float(max(1.0, row["low_s"] / took, took / row["high_s"]))


def examined(seed: int, numbers: Sequence[int], threads: int) -> Iterable[dict[str, Any]]:
    """What is found for the models of these numbers, each in a cache that knows nothing of it."""
    for start in range(0, len(numbers), _AT_ONCE):
        with tempfile.TemporaryDirectory() as folder, Bench(folder, threads=threads) as bench:
            models = []
            for number in numbers[start : start + _AT_ONCE]:
                name, proto = value_model(seed, number)
                path = Path(folder) / f"{name}.onnx"
                onnx.save(proto, path)
                models.append(bench.read(path))
            for each in bench.compare(models).rows:
                yield _row(each)


def _row(found: ModelComparison | ComparisonFailure) -> dict[str, Any]:
    if isinstance(found, ComparisonFailure):
        return {"model": found.model, "error": found.error}
    row = {
        "model": found.model,
        "ratio": found.ratio,
        "measured_latency_s": found.measured_s.value,
        "estimate_s": found.estimate.estimate_s,
        "low_s": found.estimate.low_s,
        "high_s": found.estimate.high_s,
    }
    found_out = {**row, "outside": outside(row)}
    return {k: v if isinstance(v, str) else float(f"{v:.4g}") for k, v in found_out.items()}


def section(found: dict[str, Any]) -> list[str]:
    """The section of research/conformance.md about these models, from what was found."""
    rows = [row for row in found["models"] if row.get("error") is None]
    wrong = [row for row in rows if row["outside"] > BEYOND]
    errors = sorted(abs(row["ratio"] - 1) for row in rows)
    table = []
    for kind in KINDS:
        of = [row for row in rows if row["model"].rpartition("_")[0] == kind]
        if of:
            errs = sorted(abs(row["ratio"] - 1) for row in of)
            mean = statistics.geometric_mean(row["ratio"] for row in of)
            outer = sum(row["outside"] > BEYOND for row in of)
            table.append(
                f"| {kind.replace('_', ' ')} | {len(of)} | {statistics.median(errs):.1%} |"
                f" {errs[-1]:.1%} | {mean:.3f} | {outer} |"
            )
    return [
        MARKS[0],
        "## Where values decide",
        "",
        f"Written by `make values`: {len(rows)} random models of operators that select, sort,"
        " search or repeat, behind matrix products, softmax and comparisons"
        f" (`tools/value_models.py`, seed {found['seed']}), against full runs with"
        f" {found['threads']} thread, ONNX Runtime"
        f" {found['onnxruntime']} on {found['system']} ({found['date']}). The median error is"
        f" {statistics.median(errors):.1%}, the geometric mean of ratios"
        f" {statistics.geometric_mean(row['ratio'] for row in rows):.3f}; {len(wrong)} runs are"
        f" outside of the interval of their estimate by more than {BEYOND - 1:.0%}.",
        "",
        "| models of | number | median error | worst | geometric mean"
        f" | outside by more than {BEYOND - 1:.0%} |",
        "|---|--:|--:|--:|--:|--:|",
        *table,
        MARKS[1],
    ]


def main() -> None:
    """Make the models, compare, and write the page's data and its section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=306)
    parser.add_argument("--first", type=int, default=0, help="the number of the first model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=FOUND)
    parser.add_argument("--page", action="store_true", help="only write the page's section")
    options = parser.parse_args()
    if options.page:
        replace_section(MARKS, section(json.loads(options.json.read_text(encoding="utf-8"))))
        return
    rows = []
    numbers = range(options.first, options.first + options.models)
    for row in examined(options.seed, numbers, options.threads):
        rows.append(row)
        print(json.dumps(row), flush=True)
    with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=1) as bench:
        system = bench.target.system.name
    found = {
        "onnxruntime": onnxruntime.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "system": system,
        "seed": options.seed,
        "threads": options.threads,
        "models": rows,
    }
    rows_text = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps({**found, "models": []}, indent=1)
    text = head.replace('"models": []', f'"models": [\n{rows_text}\n ]')
    options.json.write_text(text + "\n", encoding="utf-8")
    if options.json == FOUND:
        replace_section(MARKS, section(found))


if __name__ == "__main__":
    main()
