"""How well is generated text predicted? Steps of decoders beside a real greedy loop.

Writes docs/scenarios.md (its tables of generation) and benchmarks/results/generation.json.

    .venv/bin/python benchmarks/generation.py --minutes 20

Each case generates texts before and after the bricks of its steps are measured, in one cache. The
steps that are compared have lengths of the cache that were not measured. Decoders of seven billion
parameters are predicted alone: their weights exist nowhere. A case is kept at once, and the next
call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks import Bench, BricksError
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent, seconds, size
from bricks.samples.statistics import median
from bricks.studies.generation.options import GenerationOptions
from bricks.studies.generation.result import GenerationResult
from bricks.studies.generation.study import predict_generation
from bricks.studies.generation.texts import Generation

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "generation.json"
PAGE = ROOT / "docs" / "scenarios.md"
CACHE = ROOT / "cache" / "generation"

PROMPT, NEW = 256, 64
CASES = [
    (f"decoder_{name}", threads, batch)
    for name in ("gpt2", "llama", "grouped")
    for threads in (1, 2)
    for batch in (1, 4)
]
LARGE_CASES = [("decoder_llama_7b_int4", 2, 1), ("decoder_llama_7b_int8", 2, 1)]
LARGE_PROMPT, LARGE_NEW = 512, 128
RULE = StopRule(precision=0.02, max_rounds=12)

Facts = dict[str, Any]
Case = tuple[str, int, int]


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decoders", nargs="+", help="Only these.")
    parser.add_argument("--minutes", type=float, help="Begin nothing after this time.")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    found: Facts = {"rows": [], "large": []}
    if arguments.raw.exists():
        found = json.loads(arguments.raw.read_text(encoding="utf-8"))
    if not arguments.pages:
        _measure(found, arguments)
    parts = {"generated": _checked_table(found), "large": _large_table(found)}
    put(arguments.page, __file__, parts)


def _measure(found: Facts, arguments: argparse.Namespace) -> None:
    minutes = arguments.minutes
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for key, cases in (("rows", CASES), ("large", LARGE_CASES)):
        known = {(row["decoder"], row["threads"], row["batch"]) for row in found[key]}
        for case in cases:
            if case in known or (arguments.decoders and case[0] not in arguments.decoders):
                continue
            if time.monotonic() >= deadline:
                return
            found[key].append(_row(case, key == "rows", arguments.cache, found))
            print(found[key][-1], flush=True)
            arguments.raw.write_text(
                json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8"
            )


def _row(case: Case, checked: bool, cache: Path, found: Facts) -> Facts:
    decoder, threads, batch = case
    facts: Facts = {"decoder": decoder, "threads": threads, "batch": batch}
    conditions = Conditions(rule=RULE)
    tokens = (PROMPT, NEW) if checked else (LARGE_PROMPT, LARGE_NEW)
    prompt_tokens, new_tokens = tokens
    texts = Generation(prompt_tokens, new_tokens, batch)
    asked = GenerationOptions(model=decoder, generation=texts, check=checked)
    with Bench(cache, threads=threads, conditions=conditions, published=False) as bench:
        found |= {
            "system": bench.target.system.name,
            "runtime": f"onnxruntime {bench.target.runtime.version}",
            "date": datetime.now(UTC).date().isoformat(),
        }
        began = time.monotonic()
        try:
            result = predict_generation(bench.workspace, asked)
        except BricksError as error:
            return {**facts, "error": str(error)}
        wall_s = time.monotonic() - began
    if not checked:
        return {**facts, **_predicted(result), "wall_s": wall_s}
    return {**facts, **_predicted(result), **_real(result)}


def _predicted(result: GenerationResult) -> Facts:
    assert result.tpot_s is not None
    return {
        "ttft_s": _told(result.ttft_s),
        "tpot_s": _told(result.tpot_s),
        "tokens_per_s": _told(result.tokens_per_s),
        "memory": [
            result.memory.weight_bytes, result.memory.cache_bytes, result.memory.peak_bytes,
        ],
        "measured_share": min(
            1 - step.run.provenance.predicted_share for step in (result.prompt, *result.shown)
        ),
    }  # fmt: skip


def _told(figure: Any) -> list[float]:
    return [float(f"{each:.4g}") for each in (figure.value, figure.low, figure.high)]


def _real(result: GenerationResult) -> Facts:
    """What was generated, and steps at three lengths that were not estimated."""
    checked, asked = result.checked, result.generation
    assert checked is not None
    lengths = [asked.prompt_tokens + round(part * (asked.new_tokens - 2) / 6) for part in (1, 3, 5)]
    return {
        "step_cost_s": checked.step_s,
        "real_ttft_s": checked.ttft_s,
        "real_tpot_s": checked.tpot_s,
        "real_tokens_per_s": checked.tokens_per_s,
        "steps": [
            {
                "past": past,
                "estimate_s": _told(result.times.at(asked.batch, past)),
                "real_s": checked.steps_s[past],
            }
            for past in lengths
        ],
    }


def _checked_table(found: Facts) -> str:
    lines = [
        "| decoder | threads | texts | first token | generated | ratio | token at three lengths |"
        " generated | ratios | between steps | tokens/s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows = [row for row in found["rows"] if "error" not in row]
    rows.sort(key=lambda row: CASES.index((row["decoder"], row["threads"], row["batch"])))
    for row in rows:
        steps = row["steps"]
        cells = [
            row["decoder"].removeprefix("decoder_"), str(row["threads"]), str(row["batch"]),
            seconds(row["ttft_s"][0]), seconds(row["real_ttft_s"]),
            number(row["ttft_s"][0] / row["real_ttft_s"], 3),
            ", ".join(seconds(step["estimate_s"][0]) for step in steps),
            ", ".join(seconds(step["real_s"]) for step in steps),
            ", ".join(number(step["estimate_s"][0] / step["real_s"], 3) for step in steps),
            seconds(row["step_cost_s"]), number(row["real_tokens_per_s"], 1),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        f"| {row['decoder'].removeprefix('decoder_')} | {row['threads']} | {row['batch']} |"
        f" {row['error']} | | | | | | | |"
        for row in found["rows"]
        if "error" in row
    ]
    if rows:
        pairs = [(step["estimate_s"], step["real_s"]) for row in rows for step in row["steps"]]
        firsts = [(row["ttft_s"], row["real_ttft_s"]) for row in rows]
        lines += [
            "",
            f"{found['date']}, {found['system']}, {found['runtime']}, prompts of {PROMPT} tokens"
            f" and {NEW} new ones. Steps: {_summed(pairs)}. First tokens: {_summed(firsts)}.",
        ]
    return "\n".join(lines)


def _summed(pairs: Sequence[tuple[Sequence[float], float]]) -> str:
    ratios = [estimate[0] / real for estimate, real in pairs]
    errors = [abs(ratio - 1) for ratio in ratios]
    inside = sum(low <= real <= high for (_, low, high), real in pairs)
    return (
        f"median error {percent(median(errors))}, worst {percent(max(errors))}, geometric mean"
        f" {number(geometric_mean(ratios), 3)}, {inside} of {len(errors)} inside the interval"
    )


def _large_table(found: Mapping[str, Any]) -> str:
    lines = [
        "| decoder | threads | first token | time per token | tokens/s | weights | cache | peak |"
        " measuring took |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found["large"]:
        name = row["decoder"].removeprefix("decoder_")
        if "error" in row:
            lines.append(f"| {name} | {row['threads']} | {row['error']} | | | | | | |")
            continue
        intervals = [
            f"{seconds(value)} ({seconds(low)} … {seconds(high)})"
            for value, low, high in (row["ttft_s"], row["tpot_s"])
        ]
        sizes = [size(each) for each in row["memory"]]
        cells = [name, str(row["threads"]), *intervals, number(row["tokens_per_s"][0], 2), *sizes,
                 seconds(row["wall_s"])]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
