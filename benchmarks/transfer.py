"""Measures how accurate predictions are for a system of which only a few bricks are measured.

    .venv/bin/bricks measure ZOO --threads 1      (and so on: a target for each row; see the page)
    .venv/bin/python benchmarks/transfer.py --cache cache

Takes a cache in which the zoo is measured on several targets. For one target after another, the
program keeps only the bricks that `bricks probe` would measure, predicts the others from these and
from the other targets, and compares with the measurements. Writes its part of docs/accuracy.md and
benchmarks/results/transfer.json. Nothing is timed.

Families are split into two halves, as in prediction.py: constants were chosen on the first half,
with these targets.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from bricks import Store, Target
from bricks.predict.features import BrickFeatures
from bricks.predict.planner import Belief, Planner
from bricks.predict.prediction import Prediction
from bricks.predict.predictor import learn
from bricks.predict.transfer import SourceTarget, expected, learn_transfer
from bricks.report.tables import number, percent
from bricks.samples.statistics import NORMAL_95
from bricks.session.measured_target import MeasuredTarget
from bricks.session.source_targets import source_target
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "transfer.json"
PAGE = ROOT / "docs" / "accuracy.md"
MARKS = ("<!-- transfer: written by benchmarks/transfer.py -->", "<!-- /transfer -->")

COUNTS = (48, 96, 192)
# A target is reported if at least so many models of the zoo are measured on it.
_MIN_MODELS = 50


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """A target on which the zoo is measured; ``counts`` has occurrences of bricks by model."""

    target: Target
    latency_s: Mapping[str, float]
    features: Mapping[str, BrickFeatures]
    families: Mapping[str, set[str]]
    counts: Mapping[str, Mapping[str, int]]
    elsewhere: SourceTarget

    @property
    def name(self) -> str:
        """The target's name on the page."""
        runtime = self.target.runtime
        threads = "1 thread" if runtime.threads == 1 else f"{runtime.threads} threads"
        return f"{runtime.backend}, {threads}, optimisation {runtime.optimization}"


def read(store: Store) -> list[KnownTarget]:
    """All targets of the cache on which most of the zoo is measured."""
    found = []
    for target in store.systems.targets():
        measured = MeasuredTarget(store, target.key, "executed")
        elsewhere = source_target(measured)
        if elsewhere is None:
            continue
        known = measured.latencies()
        latency_s, families = known.seconds, known.families
        counts = {}
        for plan, _ in store.plans.all(target.key, "executed"):
            counted = dict(plan.counts)
            if counted.keys() <= latency_s.keys():
                counts[plan.model] = counted
        if len(counts) >= _MIN_MODELS:
            features = measured.features(list(latency_s))
            found.append(KnownTarget(target, latency_s, features, families, counts, elsewhere))
    return sorted(found, key=lambda known: known.name)


def halves() -> dict[str, int]:
    """The half that each model's family is in."""
    family = {entry.name: entry.family for entry in entries()}
    numbers = {name: i % 2 for i, name in enumerate(sorted(set(family.values())))}
    return {model: numbers[name] for model, name in family.items()}


def left_out(
    known: KnownTarget, others: Sequence[SourceTarget], half: int, count: int
) -> dict[str, Any]:
    """Predictions for a target of which only probes are known."""
    mine = halves()
    counts = {name: c for name, c in known.counts.items() if mine.get(name) == half}
    keys = sorted({key for counted in counts.values() for key in counted})
    features = {key: known.features[key] for key in keys}
    beliefs = {key: Belief(s) for key, s in expected(features, others).items()}
    familiar = frozenset[str]().union(*(other.kernels for other in others))
    probes = Planner(counts, features, beliefs, familiar).choose(0.001, most=count)
    measured = {key: known.latency_s[key] for key in probes}
    rest = {key: t for key, t in features.items() if key not in measured}
    transfer = learn_transfer(features, measured, known.families, others)
    alone = learn(features, measured, known.families)
    assert transfer is not None and alone is not None, "too few probes"
    found: dict[str, Any] = {"target": known.name, "half": half, "probes": count}
    found["measuring_s"] = sum(measured.values())
    for name, predictor in (("transfer", transfer), ("alone", alone)):
        predicted = predictor.predict(rest)
        off = [abs(math.log(p.latency_s / known.latency_s[key])) for key, p in predicted.items()]
        rows = [
            _model(c, known.latency_s, measured, predicted, predictor.bias) for c in counts.values()
        ]
        found[name] = {
            "bricks": len(off),
            "brick_error": float(np.median(np.expm1(off))),
            "models": len(rows),
            "errors": [abs(ratio - 1) for ratio, _ in rows],
            "geomean_ratio": geometric_mean(ratio for ratio, _ in rows),
            "inside": float(np.mean([inside for _, inside in rows])),
        }
    return found


def _model(
    counts: Mapping[str, int],
    latency_s: Mapping[str, float],
    measured: Mapping[str, float],
    predicted: Mapping[str, Prediction],
    bias: float,
) -> tuple[float, bool]:
    """The ratio of a model's sum to that of measured bricks, and whether its interval holds it."""
    truth_s = sum(n * latency_s[key] for key, n in counts.items())
    part = [(n, predicted[key]) for key, n in counts.items() if key in predicted]
    part_s = sum(n * p.latency_s for n, p in part)
    told_s = part_s + sum(n * measured[key] for key, n in counts.items() if key in measured)
    variance = sum((n * p.latency_s * p.log_sd) ** 2 for n, p in part) + (bias * part_s) ** 2
    sd = math.hypot(math.sqrt(variance) / told_s, 0.01)
    return told_s / truth_s, abs(math.log(told_s / truth_s)) <= NORMAL_95 * sd


_HEAD = (
    "| the new target | bricks measured | bricks: median error | models | median error"
    " | 95th percentile | geometric mean | inside the interval | without other targets: bricks"
    " | models | 95th percentile | geometric mean |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)


def tables(results: Sequence[Mapping[str, Any]]) -> str:
    """A row for each target, number of probes and half of the families; the page has fewer."""
    parts = []
    for half, name in enumerate(("First", "Second")):
        rows = [row for row in results if row["half"] == half]
        parts.append("\n".join([f"## {name} half of the families", "", *_HEAD, *_lines(rows)]))
    return "\n\n".join(parts)


def table(results: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """The part of the page."""
    second = [row for row in results if row["half"] == 1]
    usual = [row for row in second if row["probes"] == 96]
    both, here = (_in_words(_all(usual, name)) for name in ("transfer", "alone"))
    lines = [
        "## A system that is hardly known",
        "",
        "With 96 measured bricks (the default of `bricks probe`) and measurements of other targets,"
        f" models are predicted with a median error of {both}; without other targets, of {here}.",
        "",
        f"Written by `benchmarks/transfer.py` on {about['date']}, on {about['system']}. Each row"
        " treats one [target](glossary.md#target) as new: of its bricks, only those count as"
        " measured that `bricks probe` would choose; of the other targets, all do. The rest is"
        " predicted and compared with its measurements. The models are those of the second half of"
        " the zoo's families; constants were chosen on the first half, with these targets. A model"
        " is the sum of its bricks here; recomposition adds the error"
        " [above](#how-accurate-estimates-are).",
        "",
        *_HEAD,
    ]
    lines += _lines(usual)
    for count in COUNTS:
        mine = [row for row in second if row["probes"] == count]
        lines.append(_line("all", count, _all(mine, "transfer"), _all(mine, "alone")))
    first = [row for row in results if row["half"] == 0 and row["probes"] == 96]
    lines.append(_line("all, first half", 96, _all(first, "transfer"), _all(first, "alone")))
    once_ms = 1e3 * max(row["measuring_s"] for row in usual)
    lines += [
        "",
        f"Running the 96 bricks once takes {once_ms:.0f} ms at most; loading and sampling them"
        " takes seconds. `benchmarks/transfer.py --tables` prints the rows of all targets from"
        " `benchmarks/results/transfer.json`, in which errors have three digits.",
        "",
        "    .venv/bin/bricks measure ZOO --threads 1 --cache cache/transfer",
        "    .venv/bin/bricks measure ZOO --threads 2 --cache cache/transfer",
        "    .venv/bin/bricks measure ZOO --optimization extended --threads 2 --cache"
        " cache/transfer",
        "    .venv/bin/bricks measure ZOO --optimization basic --threads 1 --cache cache/transfer",
        "    .venv/bin/bricks measure GLUON --threads 1 --runtime mxnet --cache cache/transfer",
        "    .venv/bin/python benchmarks/transfer.py --cache cache/transfer",
        "",
        "`ZOO` stands for all names of `bricks zoo list`, `GLUON` for those that begin with `gluon`"
        " or `mx`.",
    ]
    return "\n".join(lines)


def _in_words(found: Mapping[str, Any]) -> str:
    error, mean = percent(float(np.median(found["errors"]))), found["geomean_ratio"]
    return f"{error} (geometric mean of ratios {number(mean, 3)})"


def _all(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    found = [row[name] for row in rows]
    weights = [each["models"] for each in found]
    return {
        "brick_error": float(np.mean([each["brick_error"] for each in found])),
        "models": sum(each["models"] for each in found),
        "errors": [error for each in found for error in each["errors"]],
        "inside": float(np.average([each["inside"] for each in found], weights=weights)),
        "geomean_ratio": _pooled([each.get("geomean_ratio") for each in found], weights),
    }


def _pooled(means: Sequence[float | None], weights: Sequence[int]) -> float | None:
    """The geometric mean of all models, from those of parts; None where earlier results lack it."""
    logs = [math.log(mean) for mean in means if mean is not None]
    return math.exp(np.average(logs, weights=weights)) if len(logs) == len(means) else None


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_line(row["target"], row["probes"], row["transfer"], row["alone"]) for row in rows]


def _line(name: str, count: int, transfer: Mapping[str, Any], alone: Mapping[str, Any]) -> str:
    cells = [
        str(count),
        percent(transfer["brick_error"]),
        str(transfer["models"]),
        percent(float(np.median(transfer["errors"]))),
        percent(float(np.quantile(transfer["errors"], 0.95))),
        number(transfer.get("geomean_ratio"), 3),
        percent(transfer["inside"], 0),
        percent(alone["brick_error"]),
        percent(float(np.median(alone["errors"]))),
        percent(float(np.quantile(alone["errors"], 0.95))),
        number(alone.get("geomean_ratio"), 3),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _short(facts: Any) -> Any:
    if isinstance(facts, float):
        return float(f"{facts:.3g}")
    if isinstance(facts, dict):
        return {key: _short(value) for key, value in facts.items()}
    return [_short(value) for value in facts] if isinstance(facts, list) else facts


def main() -> None:
    """Leave out one target after another; write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", default="cache", help="The cache with the measurements.")
    parser.add_argument("--tables", action="store_true", help="Only print all rows of the results.")
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(json.loads(RAW.read_text(encoding="utf-8"))["results"]))
        return
    with Store.open(arguments.cache, make=False) as store:
        every = read(store)
    results = []
    for known in every:
        others = [other.elsewhere for other in every if other is not known]
        results += [left_out(known, others, half, count) for half in (0, 1) for count in COUNTS]
    about = {"date": str(datetime.now(UTC).date()), "system": every[0].target.system.name}
    facts = {"about": about, "results": results}
    RAW.write_text(json.dumps(_short(facts), separators=(",", ":")) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    part = f"{MARKS[0]}\n{table(results, about)}\n{MARKS[1]}"
    if MARKS[0] in text:
        before, rest = text.split(MARKS[0])
        PAGE.write_text(f"{before}{part}{rest.split(MARKS[1])[1]}", encoding="utf-8")
    else:
        PAGE.write_text(f"{text.rstrip()}\n\n{part}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
