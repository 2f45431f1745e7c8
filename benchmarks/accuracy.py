"""How exact are estimates? Compare the zoo with whole-model runs.

Writes docs/accuracy.md, the table in the README, and raw samples.

    .venv/bin/python benchmarks/accuracy.py

For every thread count a fresh cache is filled: bricks and whole models are sampled in turn, model
by model. Raw samples go to benchmarks/results/accuracy.json, in microseconds. Takes about a minute
per thread count; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bricks import Bench, Compared, Comparison, Measurement
from bricks.measure.probes import PROBES
from bricks.report.tables import number, percent, seconds
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "accuracy.json"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
MARKS = ("<!-- accuracy: written by benchmarks/accuracy.py -->", "<!-- /accuracy -->")

HEAD = """# How exact estimates are

Written by `benchmarks/accuracy.py` on {date}, on {system} with {backend}
{version}; raw samples are in `benchmarks/results/accuracy.json`, in microseconds.

Every model's latency is recomposed from its bricks (granularity `{granularity}`) and set beside
runs of the whole model on the same machine. Bricks and whole model are sampled in turn, round by
round, with a fresh cache; a brick that an earlier model of the list shares is not measured again.
Latencies are medians; intervals are those of the medians (95 %), from the samples' spread alone.
Nothing was fitted: there is no parameter that these models could have decided, save the rules
described in [measuring](measuring.md), which were found with the same nine models.
This is one session: from one to the next, single models move by a few percent.
"""


def main() -> None:
    """Measure, and write the page and the raw samples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    sections, raw, comparisons = [], {}, {}
    for threads in arguments.threads:
        with tempfile.TemporaryDirectory() as cache, Bench(cache, threads=threads) as bench:
            models = [bench.read(entry.name) for entry in entries()]
            comparison = bench.compare(models)
            raw[f"{threads} threads"] = samples(bench, comparison)
        sections.append(section(threads, comparison))
        comparisons[threads] = comparison
    # First of all, so that nothing measured is lost whatever follows.
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")
    target = comparison.target
    head = HEAD.format(
        date=datetime.now(UTC).date(),
        system=target.system.name,
        backend=target.runtime.backend,
        version=target.runtime.version,
        granularity=comparison.granularity,
    )
    PAGE.write_text("\n".join([head, *sections]), encoding="utf-8")
    write_readme(comparisons)


def samples(bench: Bench, comparison: Comparison) -> dict[str, Any]:
    """Rounds of every brick, probe and model in microseconds, to four digits."""
    rows = [row for row in comparison.rows if isinstance(row, Compared)]
    names = {row.plan.digest: row.model for row in rows}
    keys = sorted({key for row in rows for key in row.plan.keys})
    kept = {}
    wanted = [*names, *keys, *PROBES.values()]
    for key, result in bench.store.results(comparison.target.key, wanted).items():
        if isinstance(result, Measurement):
            rounds = [[float(f"{s * 1e6:.4g}") for s in r.samples] for r in result.rounds]
            kept[names.get(key, key)] = rounds
    return kept


def section(threads: int, comparison: Comparison) -> str:
    """The table of one thread count."""
    lines = [
        f"## {threads} {'thread' if threads == 1 else 'threads'}",
        "",
        "| model | occurrences | bricks | measured | estimate | interval | estimate / measured |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in comparison.rows:
        if isinstance(row, Compared):
            interval = f"{seconds(row.estimate.low_s)} … {seconds(row.estimate.high_s)}"
            cells = (
                row.model,
                str(len(row.plan.occurrences)),
                str(len(row.plan.keys)),
                seconds(row.measured.median_s),
                seconds(row.estimate.estimate_s),
                interval,
                number(row.ratio, 3),
            )
        else:
            cells = (row.model, *[""] * 5, row.error)
        lines.append(f"| {' | '.join(cells)} |")
    s = comparison.summary
    lines += [
        "",
        f"Error |estimate / measured - 1|: median {percent(s.median_abs_error)}, 95th percentile"
        f" {percent(s.p95_abs_error)}, worst {percent(s.max_abs_error)}; geometric mean of the"
        f" ratios {number(s.geomean_ratio, 3)}. Noise floor (whole models measured twice in the"
        f" same session): {percent(s.noise_floor)}. The interval holds the measured latency for"
        f" {percent(s.interval_hit_rate, 0)} of the models.",
        "",
        f"Latencies of all models over latencies of all unique bricks: {number(s.speedup_latency)}."
        f" Wall time of measuring models over that of measuring bricks: {number(s.speedup_wall)}"
        f" ({seconds(s.models_wall_s)} against {seconds(s.bricks_wall_s)}).",
        "",
    ]
    return "\n".join(lines)


def write_readme(comparisons: dict[int, Comparison]) -> None:
    """Put what users want to see first between the marks in the README."""
    counts = list(comparisons)
    head = [f"measured, {n} thr. | estimate | ratio" for n in counts]
    lines = [f"| model | {' | '.join(head)} |", "|---" + "|--:|--:|--:" * len(counts) + "|"]
    for rows in zip(*(c.rows for c in comparisons.values()), strict=True):
        cells = [rows[0].model]
        for row in rows:
            if not isinstance(row, Compared):
                raise SystemExit(f"{row.model} could not be compared: {row.error}")
            cells += [
                seconds(row.measured.median_s),
                seconds(row.estimate.estimate_s),
                number(row.ratio, 3),
            ]
        lines.append(f"| {' | '.join(cells)} |")
    errors = ", ".join(
        f"{percent(c.summary.median_abs_error)} (worst {percent(c.summary.max_abs_error)}) with {n}"
        f" {'thread' if n == 1 else 'threads'}"
        for n, c in comparisons.items()
    )
    target = comparisons[counts[0]].target
    lines += [
        "",
        f"Median error {errors}, on {target.system.name} with {target.runtime.backend}"
        f" {target.runtime.version}. From `benchmarks/accuracy.py`; see"
        " [how exact estimates are](docs/accuracy.md).",
    ]
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    table = "\n".join(lines)
    README.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
