"""How accurate are predictions of memory? Compare the zoo with processes that run its models.

Writes docs/memory.md from raw results in benchmarks/results/memory.json, in bytes.

    .venv/bin/python benchmarks/memory.py

Each model is predicted, and then measured in fresh processes with freed memory returned: at batch 1
in three, at batch 8 in at least one. At batch 1 it is also measured with the C library's default,
and with the weights in the model's own file. Results are kept as they come: after an interruption,
or when ``--minutes`` have passed, the next run goes on; remove the raw results to begin anew.
``--page`` only writes the page, ``--fit`` prints which constants of a session fit best. Memory does
not depend on timing, so other programs may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from bricks import Bench, MemoryPeaks
from bricks.compose.memory.peak import (
    NODE_BYTES,
    SESSION_BYTES,
    WEIGHT_BYTES,
    PeakMemory,
    session_size_bytes,
)
from bricks.compose.memory.weights import weight_memory
from bricks.errors import BricksError
from bricks.report.tables import number, percent, size
from bricks.samples.statistics import median
from bricks.session import peak_memory
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "memory.json"
PAGE = ROOT / "docs" / "memory.md"

# By batch, the least number of processes that each model is measured in.
PROCESSES = {1: 3, 8: 1}

# How a process otherwise holds weights and freed memory: arguments of measure_memory.
VARIANTS: dict[str, dict[str, bool]] = {
    "default": {"keeps_freed": True},
    "inline": {"inline": True},
}

FAMILIES = {entry.name: entry.family for entry in entries()}
# Every second family, in the order of their names: constants were chosen on these.
FITTED = frozenset(sorted(set(FAMILIES.values()))[::2])

SHOWN = 10  # of the models that are predicted worst

Row = dict[str, Any]

HEAD = """# How much memory a model needs

Written by `benchmarks/memory.py` on {date}, on {system} with onnxruntime {version}; raw results are
in `benchmarks/results/memory.json`, in bytes.

`bricks predict --json` tells a model's [peak memory](glossary.md#peak-memory) (`peak_bytes`) and
its parts (`memory`), `bricks explain` and `bricks predict -v` show them. It is recomposed from the
[plan](glossary.md#plan): nothing is measured, and no weight has to exist. A model that this machine
could not hold gets an answer as fast as any other.

{table}

|predicted / measured - 1|, and the geometric mean of predicted / measured, with one thread, for
{models} of the zoo's {zoo} ONNX models{left_out}.
Measured is the median of {processes} processes at batch 1, and of one or more at batch 8. They
return freed memory. At batch 1, the highest of them is {spread} above the lowest in the median.

With the C library's default settings, which keep freed memory, a peak is {default_median} of that
in the median ([below](#what-is-predicted)).
"""

METHOD = """
## What is predicted

The most memory that is resident in a process while it creates a session for the model and runs it,
beyond what it held before: with the runtime imported and nothing loaded. The session has ONNX
Runtime's default options, so an arena of its own. Inputs have one shape, exist once, and are handed
over without a copy; outputs are dropped after each run.

- **Weights are in a file beside the model** (`save_as_external_data`), which the runtime maps. All
  pages of a mapped weight count, although a small input touches few rows of an embedding.
- **Freed memory is returned.** With its default settings, glibc keeps freed blocks for later use:
  then a peak is {default_median} of that in the median, and {default_p95} at the 95th percentile
  (batch 1), and the prediction is {default_error} off in the median. The model does not need those
  blocks, and `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072` makes a process return them.
- **Weights in the model's own file** are there twice while it is read: then a peak is
  {inline_median} in the median, and {inline_p95} at the 95th percentile (batch 1, freed memory
  returned).
- **Copies that a program makes** of inputs and outputs come on top, such as those of
  `InferenceSession.run` in Python, which copies each output.

`measure_memory(bench.workspace, model)`, in `bricks/session/peak_memory.py`, measures a model's
peak in a fresh process, in each of these three ways.

## What it consists of

{parts}

The three constants of *runtime* were fitted to {fitted} of the zoo's {families} families, every
second one by name; `--fit` does so on these results. They include what every first session brings
into memory: of the {tiny} models that need less than 32 MiB at batch 1, *runtime* is {tiny_share}
in the median. All other rules follow from how the runtime works, and tests compare them with it
(`tests/compose/memory/`).

An operator without a rule has an unknown workspace, and values that hold texts an unknown size.
They are left out and named (`memory.unknown`), and the peak is shown as a lower bound (`≥`). The
same goes for plans that an earlier version has made: they do not tell what loading needs.

## Where there is no prediction

`peak_bytes` is null, and `memory.reason` says why:

- with another runtime than ONNX Runtime: MXNet's allocator is not modelled;
- with another [granularity](glossary.md#granularity) than `executed`: memory follows from the graph
  that is executed;
- with `--workers`: memory then becomes free in no fixed order.

## The largest errors

{worst}

Of some models, the runtime orders the nodes differently from process to process.

## How to repeat it

    .venv/bin/python benchmarks/memory.py

It goes on where it was interrupted; remove the raw results to begin anew.
"""

PARTS = {
    "weights": "each once, in the form that its kernel keeps: packed for products (columns padded"
    " to 16), reordered for blocked convolutions, else as in the file",
    "activations": "inputs, outputs and all values between, as the runtime's planner lets them"
    " share buffers, its arena grows, and its memory pattern repeats the first run; all three are"
    " simulated over three runs (`bricks/compose/memory/activations.py`)",
    "workspace": "what kernels take while they run, by a rule for each operator"
    " (`bricks/compose/memory/workspace.py`)",
    "runtime": f"{size(SESSION_BYTES)} for a session, {size(NODE_BYTES)} for each node,"
    f" {size(WEIGHT_BYTES)} for each weight",
    "loading": "what loading needs beyond all of these, mostly for weights that exist both"
    " before and after they are rewritten (`bricks/compose/memory/weights.py`); 0 where running"
    " needs more",
}


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--page", action="store_true", help="Only write the page.")
    parser.add_argument("--fit", action="store_true", help="Only print what fits best.")
    given = parser.parse_args()
    if not (given.page or given.fit):
        with tempfile.TemporaryDirectory() as name:
            measure(given.cache or Path(name), given.minutes)
    facts = json.loads(RAW.read_text(encoding="utf-8"))
    missing = sum(1 for _ in _wanted(facts["rows"]))
    if missing:
        print(f"{missing} results are missing: run it again")
    elif given.fit:
        print(fit(facts["rows"]))
    else:
        PAGE.write_text(page(facts), encoding="utf-8")


def measure(cache: Path, minutes: float | None) -> None:
    """Add the missing results to those that are there already."""
    facts = json.loads(RAW.read_text(encoding="utf-8")) if RAW.exists() else {"rows": []}
    rows = {(row["model"], row["batch"]): row for row in facts["rows"]}
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with Bench(cache, threads=1) as bench:
        facts |= {
            "date": datetime.now(UTC).date().isoformat(),
            "system": bench.target.system.name,
            "version": bench.workspace.runtime.version,
        }
        for name, batch in _wanted(facts["rows"]):
            if deadline is not None and time.monotonic() > deadline:
                break
            row = rows.setdefault((name, batch), {"model": name, "batch": batch, "error": None})
            _complete(bench, row)
            _keep(facts | {"rows": [rows[key] for key in sorted(rows, key=lambda k: k[::-1])]})


def _wanted(rows: Sequence[Row]) -> Iterator[tuple[str, int]]:
    """The models and batches that lack results."""
    done = {
        (row["model"], row["batch"])
        for row in rows
        if row["error"] is not None or len(row.get("returned", ())) >= PROCESSES[row["batch"]]
    }
    every = ((name, batch) for batch in PROCESSES for name in FAMILIES)
    yield from (each for each in every if each not in done)


def _complete(bench: Bench, row: Row) -> None:
    """Add what a row lacks: the prediction for its model, and measured peaks."""
    try:
        model = bench.read(row["model"], batch=row["batch"])
        row |= _predicted(
            bench, peak_memory.predict_memory(bench.workspace, model), bench.decompose(model)
        )
        returned: list[list[int]] = row.setdefault("returned", [])
        while len(returned) < PROCESSES[row["batch"]]:
            returned.append(_pair(peak_memory.measure_memory(bench.workspace, model)))
        for variant, how in VARIANTS.items():
            if row["batch"] == 1 and variant not in row:
                row[variant] = _pair(peak_memory.measure_memory(bench.workspace, model, **how))
    except BricksError as error:
        row["error"] = str(error)


def _predicted(bench: Bench, memory: Any, decomposition: Any) -> Row:
    assert isinstance(memory, PeakMemory), memory
    plan = decomposition.plan
    return {
        "nodes": len(plan.occurrences),
        "weights": weight_memory(plan, decomposition.bricks).count,
        "weight_bytes": memory.weight_bytes,
        "activation_bytes": memory.activation_bytes,
        "workspace_bytes": memory.workspace_bytes,
        "loading_bytes": memory.loading_bytes,
        "unknown": list(memory.unknown),
    }


def _pair(peaks: MemoryPeaks) -> list[int]:
    return [peaks.loading_bytes, peaks.running_bytes]


def _keep(facts: Mapping[str, Any]) -> None:
    """Write the results so far; a row a line, so that differences can be read."""
    rows = ",\n".join(json.dumps(row) for row in facts["rows"])
    text = json.dumps({**facts, "rows": "ROWS"}, indent=1).replace('"ROWS"', f"[\n{rows}\n]")
    beside = RAW.with_suffix(".tmp")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(RAW)


def needed_bytes(row: Row) -> int:
    """The prediction without the session's own data."""
    parts = ("weight_bytes", "activation_bytes", "workspace_bytes", "loading_bytes")
    return sum(int(row[part]) for part in parts)


def predicted_bytes(row: Row) -> int:
    """The predicted peak, with today's constants."""
    return needed_bytes(row) + session_size_bytes(row["nodes"], row["weights"])


def measured_bytes(row: Row) -> float:
    """The measured peak: the median of several processes."""
    return median([float(max(pair)) for pair in row["returned"]])


def ratio(row: Row) -> float:
    """Predicted over measured peak."""
    return predicted_bytes(row) / measured_bytes(row)


def error(row: Row) -> float:
    """Predicted over measured peak, minus one."""
    return ratio(row) - 1


def fit(rows: Sequence[Row]) -> str:
    """The constants of a session that make relative errors of the fitted families smallest.

    Their sum, not that of their squares: few models with large errors should not decide.
    """
    chosen = [row for row in rows if FAMILIES[row["model"]] in FITTED and row["error"] is None]
    features = np.array([[1.0, row["nodes"], row["weights"]] for row in chosen])
    missing = np.array([measured_bytes(row) - needed_bytes(row) for row in chosen])
    scale = 1 / np.array([measured_bytes(row) for row in chosen])
    weights = scale.copy()
    for _ in range(100):  # least squares, reweighted until they are least absolute errors
        found = np.linalg.lstsq(features * weights[:, None], missing * weights, rcond=None)[0]
        off = np.abs(features @ found - missing) * scale
        weights = scale / np.sqrt(np.maximum(off, 1e-4))
    names = ("SESSION_BYTES", "NODE_BYTES", "WEIGHT_BYTES")
    return "\n".join(f"{name} = {value:,.0f}" for name, value in zip(names, found, strict=True))


def page(facts: Mapping[str, Any]) -> str:
    """The page about these results."""
    rows = [row for row in facts["rows"] if row["error"] is None]
    first = [row for row in rows if row["batch"] == 1]
    failed = sorted({row["model"] for row in facts["rows"] if row["error"] is not None})
    spreads = [max(map(max, row["returned"])) / min(map(max, row["returned"])) - 1 for row in first]
    tiny = [row for row in first if measured_bytes(row) < 32 << 20]
    shares = [1 - needed_bytes(row) / predicted_bytes(row) for row in tiny]
    default, inline = (
        [max(row[variant]) / measured_bytes(row) for row in first] for variant in VARIANTS
    )
    default_errors = [abs(predicted_bytes(row) / max(row["default"]) - 1) for row in first]
    return HEAD.format(
        date=facts["date"],
        system=facts["system"],
        version=facts["version"],
        table=_table(rows),
        models=len({row["model"] for row in rows}),
        zoo=len(FAMILIES),
        left_out=f" ({', '.join(failed)} failed)" if failed else "",
        processes=PROCESSES[1],
        spread=percent(median(spreads), 2),
        default_median=_times(median(default)),
    ) + METHOD.format(
        default_median=_times(median(default)),
        default_p95=_times(_quantile(default, 0.95)),
        default_error=percent(median(default_errors), 0),
        inline_median=_times(median(inline)),
        inline_p95=_times(_quantile(inline, 0.95)),
        parts="\n".join(("| part | content |", "|---|---|", *_parts())),
        fitted=len(FITTED),
        families=len(set(FAMILIES.values())),
        tiny=len(tiny),
        tiny_share=percent(median(shares), 0),
        worst=_worst(rows),
    )


def _parts() -> Iterator[str]:
    yield from (f"| {name} | {content} |" for name, content in PARTS.items())


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| | models | median error | 95th percentile | worst | geometric mean |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    groups: dict[str, Callable[[Row], bool]] = {
        "families that no constant was fitted to": lambda row: FAMILIES[row["model"]] not in FITTED,
        "fitted families": lambda row: FAMILIES[row["model"]] in FITTED,
        "all": lambda row: True,
    }
    for title, belongs in groups.items():
        for batch in PROCESSES:
            chosen = [row for row in rows if row["batch"] == batch and belongs(row)]
            ratios = [ratio(row) for row in chosen]
            sizes = [abs(each - 1) for each in ratios]
            lines.append(
                f"| {title}, batch {batch} | {len(ratios)} | {percent(median(sizes))} |"
                f" {percent(_quantile(sizes, 0.95))} | {percent(max(sizes))} |"
                f" {number(geometric_mean(ratios), 3)} |"
            )
    return "\n".join(lines)


def _worst(rows: Sequence[Row]) -> str:
    lines = [
        "| model | batch | predicted | measured | error | from process to process |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in sorted(rows, key=lambda row: -abs(error(row)))[:SHOWN]:
        peaks = [max(pair) for pair in row["returned"]]
        lines.append(
            f"| {row['model']} | {row['batch']} | {size(predicted_bytes(row))} |"
            f" {size(measured_bytes(row))} | {100 * error(row):+.1f} % |"
            f" {size(min(peaks))} … {size(max(peaks))} |"
        )
    return "\n".join(lines)


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share, method="higher"))


def _times(share: float) -> str:
    return f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
