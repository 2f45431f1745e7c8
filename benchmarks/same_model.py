"""The same model in several runtimes: estimates beside runs, runtime by runtime.

Writes docs/torch.md (its table of runtimes) and benchmarks/results/same_model.json.

    .venv/bin/python benchmarks/same_model.py

The zoo's PyTorch programs for inference are exported to ONNX, so that ONNX Runtime runs the same
arithmetic on the same shapes as PyTorch, as written and compiled. Every model is compared in every
runtime before the next model. A model is kept at once, and the next call goes on with what lacks,
runtimes too that were added since. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks import Bench, BricksError, ModelComparison
from bricks.backends import names
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent
from bricks.samples.statistics import median
from bricks.system.environments import install
from bricks.zoo import ZooEntry, programs, zoo_folder
from bricks.zoo.recipes import environment_of

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "same_model.json"
PAGE = ROOT / "docs" / "torch.md"
EXPORTER = ROOT / "tools" / "export_programs.py"
EXPORTING = "torch_exports"  # run in the environment of recipes that export from PyTorch

ONNX, PROGRAMS = ("onnxruntime", "openvino"), ("torch", "torch-compiled")
RULE = StopRule(precision=0.02, max_rounds=12)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the table from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workloads", nargs="+", help="Only these.")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the table.")
    arguments = parser.parse_args(words)
    facts: dict[str, Any] = {"models": {}}
    if arguments.raw.exists():
        facts = json.loads(arguments.raw.read_text(encoding="utf-8"))
    if not arguments.pages:
        chosen = [
            entry
            for entry in programs()
            if entry.code and "training" not in entry.name and "bfloat16" not in entry.name
            if _lacking(facts["models"].get(entry.name, {}))
            if not arguments.workloads or entry.name in arguments.workloads
        ]
        with tempfile.TemporaryDirectory() as folder:
            exported = _exported(chosen, Path(folder))
            for entry in chosen:
                found = facts["models"].setdefault(entry.name, {})
                found |= _measured(entry, exported[entry.name], arguments.threads, facts)
                print(entry.name, found, flush=True)
                arguments.raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    _write(facts, arguments.page)


def _exported(chosen: Sequence[ZooEntry], folder: Path) -> dict[str, Mapping[str, str]]:
    """Of each program its ONNX file, or the exporter's error."""
    if not chosen:
        return {}
    environment = environment_of(zoo_folder(), EXPORTING)
    assert environment is not None
    python, _ = install(environment, print)
    entries = {entry.name: str(zoo_folder() / str(entry.code)) for entry in chosen}
    done = subprocess.run(
        [str(python), str(EXPORTER), str(folder), *entries.values()],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[code] for name, code in entries.items()}


def _measured(
    entry: ZooEntry, exported: Mapping[str, str], threads: int, facts: dict[str, Any]
) -> dict[str, Any]:
    """One model in the runtimes that it lacks: latencies in microseconds, or an error."""
    found = dict[str, Any]()
    for runtime in _lacking(facts["models"].get(entry.name, {})):
        if runtime in ONNX and "error" in exported:
            found[runtime] = {"error": f"not exported ({exported['error']})"}
            continue
        name = exported["file"] if runtime in ONNX else entry.name
        try:
            found[runtime] = _row(runtime, name, threads, facts)
        except BricksError as error:
            found[runtime] = {"error": str(error)}
    return found


def _lacking(found: Mapping[str, Any]) -> list[str]:
    """The runtimes that are there, and of which nothing was found."""
    return [name for name in (*ONNX, *PROGRAMS) if name in names() and name not in found]


def _row(runtime: str, name: str, threads: int, facts: dict[str, Any]) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as cache,
        Bench(
            cache, runtime=runtime, threads=threads, conditions=Conditions(rule=RULE),
            published=False,
        ) as bench,
    ):  # fmt: skip
        (row,) = bench.compare([bench.read(name)]).rows
        facts |= {"system": bench.target.system.name, "threads": threads}
        facts |= {"date": datetime.now(UTC).date().isoformat()}
        facts.setdefault("versions", {})[runtime] = bench.target.runtime.version
    if not isinstance(row, ModelComparison):
        return {"error": row.error}
    return {
        "measured_us": _micro(row.measured_s.value),
        "estimate_us": _micro(row.estimate.estimate_s),
        "inside": row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s,
        "bricks": len(row.plan.keys),
    }


def _micro(latency_s: float) -> float:
    return float(f"{latency_s * 1e6:.4g}")


def _write(facts: Mapping[str, Any], page: Path) -> None:
    versions = facts["versions"]
    heads = [f"{runtime} {version}" for runtime, version in versions.items()]
    lines = [
        f"| {facts['threads']} thread, {facts['system']} | {' | '.join(heads)} |",
        f"|---|{'--:|' * len(versions)}",
    ]
    notes = []
    for model, found in sorted(facts["models"].items()):
        cells = [_cell(found.get(runtime)) for runtime in versions]
        lines.append(f"| {model.removeprefix('torch_')} | {' | '.join(cells)} |")
        notes += [
            f"- {model.removeprefix('torch_')}, {runtime}: {row['error']}"
            for runtime, row in found.items()
            if "error" in row
        ]
    lines += _summary([_ratios(facts, runtime) for runtime in versions])
    put(page, __file__, {"runtimes": "\n".join([*lines, "", *notes])})


def _ratios(facts: Mapping[str, Any], runtime: str) -> list[float]:
    """Estimate over measured latency of all models that a runtime has both of."""
    rows = (found.get(runtime, {"error": "-"}) for found in facts["models"].values())
    return [row["estimate_us"] / row["measured_us"] for row in rows if "error" not in row]


def _summary(columns: Sequence[Sequence[float]]) -> Iterator[str]:
    """Rows below those of the models: errors, and the mean of ratios, of each runtime."""
    errors = [percent(median([abs(ratio - 1) for ratio in ratios])) for ratios in columns]
    means = [number(geometric_mean(ratios), 3) for ratios in columns]
    yield f"| **median error** | {' | '.join(errors)} |"
    yield f"| **geometric mean** | {' | '.join(means)} |"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or "error" in row:
        return "–"
    error = row["estimate_us"] / row["measured_us"] - 1
    sign = "-" if error < 0 else "+"
    return f"{row['measured_us'] / 1e3:.3g} ms ({sign}{percent(abs(error))})"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
