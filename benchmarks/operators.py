"""How fast and how exactly do runtimes compute operators? DeepBench's, over all runtimes here.

Writes docs/levels.md (its figures) and benchmarks/results/operators.json.

    .venv/bin/python benchmarks/operators.py

Compares the operators over all runtimes that are installed, as ``bricks operators`` does, with one
thread. What the cache holds is not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from page_parts import with_parts

from bricks import Bench
from bricks.backends import describe, names
from bricks.errors import BackendError
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import percent, seconds
from bricks.samples.statistics import median
from bricks.studies.numerics.comparison import compare_operators
from bricks.studies.numerics.deepbench import deepbench
from bricks.studies.numerics.results import OperatorResult
from bricks.units.facts import facts

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "operators.json"
PAGE = ROOT / "docs" / "levels.md"
CACHE = ROOT / "cache" / "operators"

RUNTIMES = ("onnxruntime", "openvino", "mxnet", "torch")
RULE = StopRule(precision=0.02, max_rounds=12)

Row = Mapping[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--operators", nargs="+", help="Only these.")
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES))
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    if not arguments.pages:
        facts = _measured(arguments)
        arguments.raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    facts = json.loads(arguments.raw.read_text(encoding="utf-8"))
    text = arguments.page.read_text(encoding="utf-8")
    arguments.page.write_text(page(facts, text), encoding="utf-8")


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen = [o for o in deepbench() if not arguments.operators or o.name in arguments.operators]
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        benches = [
            opened.enter_context(
                Bench(
                    arguments.cache, runtime=name, threads=arguments.threads,
                    conditions=Conditions(rule=RULE), published=False,
                )
            )
            for name in arguments.runtimes
            if _installed(name)
        ]  # fmt: skip
        found = compare_operators(
            chosen, [each.workspace for each in benches], repeats=arguments.repeats, done=_tell
        )
        system = benches[0].target.system.name
    return {
        "system": system,
        "threads": arguments.threads,
        "date": datetime.now(UTC).date().isoformat(),
        "runtimes": [runtime.to_json() for runtime in found.runtimes],
        "operators": [_without_maps(facts(result)) for result in found.operators],
    }


def _installed(name: str) -> bool:
    if name not in names():
        return False
    try:
        describe(name)
    except BackendError as error:
        print(f"{name} is left out: {error}")
        return False
    return True


def _tell(result: OperatorResult) -> None:
    print(result.name, [run.latency for run in result.runs], flush=True)


def _without_maps(operator: dict[str, Any]) -> dict[str, Any]:
    """An operator's facts without heat maps, which are most of their bytes."""
    for run in operator["runtimes"]:
        for output in (run["accuracy"] or {"outputs": []})["outputs"]:
            del output["heat_map"], output["variance_map"]
    return operator


def page(facts: Mapping[str, Any], text: str) -> str:
    """The page ``text`` with the table and the figures of ``facts``."""
    runtimes = [runtime["backend"] for runtime in facts["runtimes"]]
    heads = [f"{r['backend']} {r['version']}" for r in facts["runtimes"]]
    lines = [
        f"{facts['threads']} thread, {facts['system']} (`benchmarks/operators.py`): latency,"
        " GFLOP/s, relative L2 error.",
        "",
        f"| operator | {' | '.join(heads)} |",
        f"|---|{'--:|' * len(heads)}",
    ]
    lacking: dict[str, list[str]] = {}
    for operator in facts["operators"]:
        rows = {row["runtime"]: row for row in operator["runtimes"]}
        cells = [_cell(rows[name]) for name in runtimes]
        lines.append(f"| {operator['operator']} | {' | '.join(cells)} |")
        for name in runtimes:
            for reason in dict.fromkeys(_reasons(rows[name])):
                lacking.setdefault(f"{name}: {reason}", []).append(operator["operator"])
    if lacking:
        lines.append("")
    lines += [f"- {reason} ({', '.join(names)})" for reason, names in lacking.items()]
    text = with_parts(text, __file__, {"operators": "\n".join(lines)})
    for name, figure in _figures(facts).items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, after = text.split(begin)[0], text.split(end)[1]
        text = f"{before}{begin}{figure}{end}{after}"
    return text


def _cell(row: Row) -> str:
    if row["latency_s"] is None:
        return "–"
    rate = "–" if row["flops_per_s"] is None else f"{row['flops_per_s'] / 1e9:.3g}"
    error = _worst(row)
    return f"{seconds(row['latency_s'])}, {rate}, {'–' if error is None else f'{error:.0e}'}"


def _reasons(row: Row) -> list[str]:
    """Why something of an operator is missing with a runtime."""
    accuracy = row["accuracy"]
    reasons = [row["error"], row["accuracy_error"]]
    if accuracy is not None:
        reasons += [accuracy["reason"], *(output["reason"] for output in accuracy["outputs"])]
    return [reason for reason in reasons if reason]


def _worst(row: Row) -> float | None:
    """The greatest relative L2 error of an output."""
    outputs = [] if row["accuracy"] is None else row["accuracy"]["outputs"]
    errors = [o["norms"]["l2_relative"] for o in outputs if o["norms"] is not None]
    return max((error for error in errors if error is not None), default=None)


def _figures(facts: Mapping[str, Any]) -> dict[str, str]:
    rows = [row for operator in facts["operators"] for row in operator["runtimes"]]
    latencies = [row["latency_s"] for row in rows if row["latency_s"] is not None]
    shares = [row["peak_share"] for row in rows if row["peak_share"] is not None]
    errors = [error for row in rows if (error := _worst(row)) is not None]
    accuracies = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    alike = sum(accuracy["distinct"] == 1 for accuracy in accuracies)
    gradients = [a["gradients"] for a in accuracies if a["gradients"] is not None]
    off = [gradient["max_relative_error"] for gradient in gradients]
    return {
        "wall_clock": f"{seconds(min(latencies))} to {seconds(max(latencies))}",
        "rates": f"median {percent(median(shares), 0)} of the roofline" if shares else "–",
        "norms": f"relative L2 error at most {max(errors):.0e}" if errors else "–",
        "variance": f"{alike} of {len(accuracies)} deterministic",
        "gradients": f"off by at most {max(off):.0e}" if off else "–",
    }


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
