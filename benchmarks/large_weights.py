"""How exact are estimates of models that mostly read weights? Chains of matrix products.

Writes a table into docs/measuring.md, and benchmarks/results/large_weights.json.

    .venv/bin/python benchmarks/large_weights.py

The chains have weights of half to sixteen times the last-level cache, in products of one size and
of two, for one row and for four; nothing else in them takes time, so whatever is wrong about the
state of weights shows. Each whole model is also run in further processes: where its pages lie in
memory decides how much of it a shared cache keeps, so its latency differs between processes, and
no estimate can be closer than that. Takes a quarter of an hour on two cores; run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import onnx
from onnx import TensorProto, helper
from page_parts import put, ratios_of

from bricks import Bench, Measurement, Model, ModelComparison
from bricks.report.tables import number, percent
from bricks.samples.statistics import median
from bricks.session import measuring

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "large_weights.json"
PAGE = ROOT / "docs" / "measuring.md"

TIMES_CACHE = (0.5, 1, 2, 4, 16)
ROWS, WIDTH = (1, 4), 1024
PROCESSES = 3
# Where the platform does not say.
_USUAL_CACHE_BYTES = 32 << 20


def chain(weight_bytes: float, rows: int, *, wide: bool) -> onnx.ModelProto:
    """A chain of matrix products with about so many bytes of weights, which stand in no file.

    All are of one size, or, if ``wide``, up to four times the width and down again in turn.
    """
    shapes = [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] if wide else [(WIDTH, WIDTH)]
    nodes: list[onnx.NodeProto] = []
    weights: list[TensorProto] = []
    at, size_bytes = "x", 0
    while size_bytes < weight_bytes:
        for shape in shapes:
            number_, own_bytes = len(nodes), 4 * shape[0] * shape[1]
            weight = TensorProto(name=f"w{number_}", data_type=TensorProto.FLOAT, dims=shape)
            weight.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "none"), ("offset", size_bytes), ("length", own_bytes)):
                weight.external_data.add(key=key, value=str(text))
            weights.append(weight)
            nodes.append(helper.make_node("MatMul", [at, weight.name], [f"h{number_}"]))
            at, size_bytes = f"h{number_}", size_bytes + own_bytes
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, WIDTH]) for n in ("x", at)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cases(bench: Bench, cache_bytes: int) -> dict[str, tuple[dict[str, Any], Model]]:
    """The chains by name, and what they are."""
    found = {}
    for wide in (False, True):
        for times in TIMES_CACHE[1:] if wide else TIMES_CACHE:
            for rows in ROWS:
                name = f"{times:g}x{rows}{'w' * wide}"
                proto = chain(times * cache_bytes, rows, wide=wide)
                facts = {"times_cache": times, "rows": rows, "two_sizes": wide}
                found[name] = (facts, bench.read(proto, name=name))
    return found


def measured(threads: int) -> tuple[str, int, list[dict[str, Any]]]:
    """The system, its cache in bytes, and each chain's latencies in seconds."""
    with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=threads) as bench:
        system = bench.target.system
        sizes: Mapping[str, int | None] = system.identity["cache_bytes"]
        cache_bytes = sizes.get("L3") or sizes.get("L2") or _USUAL_CACHE_BYTES
        of = cases(bench, cache_bytes)
        rows = []
        for row in bench.compare([model for _, model in of.values()]).rows:
            if not isinstance(row, ModelComparison):
                raise SystemExit(row.error)
            rows.append(
                of[row.model][0]
                | {
                    "name": row.model,
                    "threads": threads,
                    "measured_s": row.measured_s.value,
                    "estimate_s": row.estimate.estimate_s,
                    "low_s": row.estimate.low_s,
                    "high_s": row.estimate.high_s,
                    "elsewhere_s": [],
                }
            )
    by_name = {row["name"]: row for row in rows}
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=threads) as bench:
            models = [model for _, model in cases(bench, cache_bytes).values()]
            measuring.measure_whole(bench.workspace, models)
            results = bench.store.measurements.results(
                bench.target.key, [model.digest for model in models]
            )
            for model in models:
                result = results[model.digest]
                assert isinstance(result, Measurement)
                by_name[model.name]["elsewhere_s"].append(result.latency_s())
    return system.name, cache_bytes, rows


def table(found: Mapping[str, Any]) -> str:
    """What the page shows: a row for each number of threads and size of weights."""
    lines = [
        f"Measured by `benchmarks/large_weights.py` on {found['system']} ({found['date']}), whose"
        f" last-level cache has {found['cache_bytes'] >> 20} MiB: chains of matrix products with 1"
        f" and {ROWS[-1]} rows. The last column is how far the same model is from itself in"
        f" {PROCESSES} other processes.",
        "",
        "| threads | weights, in caches | median error | worst | median ratio"
        " | geometric mean | inside the interval | from process to process |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows = found["chains"]
    for threads in sorted({row["threads"] for row in rows}):
        for times in TIMES_CACHE:
            mine = [r for r in rows if (r["threads"], r["times_cache"]) == (threads, times)]
            ratios = ratios_of(mine)
            errors = [abs(ratio - 1) for ratio in ratios]
            apart = [abs(s / row["measured_s"] - 1) for row in mine for s in row["elsewhere_s"]]
            spread = f"{percent(median(apart))}, at most {percent(max(apart))}"
            inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in mine)
            lines.append(
                f"| {threads} | {times:g} | {percent(median(errors))} | {percent(max(errors))}"
                f" | {number(median(ratios), 3)} | {number(geometric_mean(ratios), 3)}"
                f" | {inside} of {len(mine)} | {spread} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the table.")
    options = parser.parse_args(arguments)
    if not options.pages:
        found = _found(options.threads)
        RAW.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    found = json.loads(RAW.read_text(encoding="utf-8"))
    put(options.page, __file__, {"large weights": table(found)})


def _found(every_threads: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "chains": []}
    for threads in every_threads:
        found["system"], found["cache_bytes"], rows = measured(threads)
        found["chains"] += rows
    return found


if __name__ == "__main__":
    main()
