"""The zoo in several runtimes, with one thread and with two: which is faster, and how well told.

Writes docs/runtimes.md (its tables) and benchmarks/results/runtimes.json.

    .venv/bin/python benchmarks/runtimes.py

Every model is compared in every runtime before the next model, each time in a cache of its own. A
model is kept at once, and the next call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bricks import Bench, BricksError, ModelComparison
from bricks.measure.campaign import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import percent
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "runtimes.json"
PAGE = ROOT / "docs" / "runtimes.md"

MARKS = ("<!-- runtimes: written by benchmarks/runtimes.py -->", "<!-- /runtimes -->")
RUNTIMES, THREADS = ("onnxruntime", "openvino"), (1, 2)
# Runtimes that differ by less are as good as each other.
NOTABLE = 0.05
RULE = StopRule(precision=0.02, max_rounds=12)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the tables from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", help="Only these of the zoo.")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the tables.")
    arguments = parser.parse_args(words)
    facts: dict[str, Any] = {"models": {}, "versions": {}}
    if arguments.raw.exists():
        facts = json.loads(arguments.raw.read_text(encoding="utf-8"))
    if not arguments.pages:
        for entry in entries():
            chosen = not arguments.models or entry.name in arguments.models
            if not chosen or entry.name in facts["models"]:
                continue
            found = {f"{r}:{t}": _row(r, t, entry.name, facts) for t in THREADS for r in RUNTIMES}
            facts["models"][entry.name] = found
            print(entry.name, found, flush=True)
            arguments.raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    _write(facts, arguments.page)


def _row(runtime: str, threads: int, name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """One model in one runtime: latencies in microseconds, or the reason why there are none."""
    try:
        with (
            tempfile.TemporaryDirectory() as cache,
            Bench(
                cache, runtime=runtime, threads=threads, conditions=Conditions(rule=RULE),
                published=False,
            ) as bench,
        ):  # fmt: skip
            (row,) = bench.compare([bench.read(name)]).rows
            facts["system"] = bench.target.system.name
            facts["date"] = datetime.now(UTC).date().isoformat()
            facts["versions"][runtime] = bench.target.runtime.version
    except BricksError as error:
        return {"error": str(error)}
    if not isinstance(row, ModelComparison):
        return {"error": row.error}
    return {
        "measured_us": _micro(row.measured.median_s),
        "estimate_us": _micro(row.estimate.estimate_s),
        "inside": row.estimate.low_s <= row.measured.median_s <= row.estimate.high_s,
        "bricks": len(row.plan.keys),
        "occurrences": len(row.plan.occurrences),
    }


def _micro(latency_s: float) -> float:
    return float(f"{latency_s * 1e6:.4g}")


def _write(facts: Mapping[str, Any], page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    body = "\n".join([*_accuracy(facts), "", *_models(facts), "", *_refused(facts)]).strip()
    page.write_text(f"{before}{MARKS[0]}\n{body}\n{MARKS[1]}{after}", encoding="utf-8")


def _accuracy(facts: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"| {facts['system']} | models | median error | 95th percentile | worst |"
        " inside the interval | faster runtime told |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for threads in THREADS:
        for runtime in RUNTIMES:
            rows = [
                found[f"{runtime}:{threads}"]
                for found in facts["models"].values()
                if "error" not in found[f"{runtime}:{threads}"]
            ]
            if not rows:
                continue
            errors = [abs(row["estimate_us"] / row["measured_us"] - 1) for row in rows]
            shown = [
                percent(statistics.median(errors)),
                percent(float(np.percentile(errors, 95))),
                percent(max(errors)),
                f"{statistics.mean(row['inside'] for row in rows):.0%}".replace("%", " %"),
                _told(facts, threads) if runtime == RUNTIMES[-1] else "",
            ]
            version = facts["versions"][runtime]
            name = f"{runtime} {version}, {threads} thread{'s' * (threads > 1)}"
            yield f"| {name} | {len(rows)} | {' | '.join(shown)} |"


def _told(facts: Mapping[str, Any], threads: int) -> str:
    """Of how many models the estimates name the runtime that is faster when measured.

    Of those whose runtimes differ by more than ``NOTABLE``.
    """
    right = total = 0
    for found in facts["models"].values():
        rows = [found[f"{runtime}:{threads}"] for runtime in RUNTIMES]
        if any("error" in row for row in rows):
            continue
        latencies = [row["measured_us"] for row in rows]
        if max(latencies) < (1 + NOTABLE) * min(latencies):
            continue
        total += 1
        measured, estimated = (
            min(range(len(rows)), key=[row[fact] for row in rows].__getitem__)
            for fact in ("measured_us", "estimate_us")
        )
        right += measured == estimated
    return f"{right} of {total}"


def _models(facts: Mapping[str, Any]) -> Iterator[str]:
    columns = [(runtime, threads) for threads in THREADS for runtime in RUNTIMES]
    heads = [f"{runtime}, {threads} thread{'s' * (threads > 1)}" for runtime, threads in columns]
    yield f"| model | {' | '.join(heads)} |"
    yield f"|---|{'--:|' * len(columns)}"
    for model, found in sorted(facts["models"].items()):
        cells = [_cell(found[f"{runtime}:{threads}"]) for runtime, threads in columns]
        yield f"| {model} | {' | '.join(cells)} |"


def _cell(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return "–"
    error = row["estimate_us"] / row["measured_us"] - 1
    sign = "-" if error < 0 else "+"
    return f"{row['measured_us'] / 1e3:.3g} ms ({sign}{percent(abs(error))})"


def _refused(facts: Mapping[str, Any]) -> Iterator[str]:
    for model, found in sorted(facts["models"].items()):
        for runtime in RUNTIMES:
            errors = [found[f"{runtime}:{threads}"].get("error") for threads in THREADS]
            yield from (f"- {model}, {runtime}: {error}" for error in filter(None, errors[:1]))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
