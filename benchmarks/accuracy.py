"""How accurate are estimates? Compare the zoo with whole-model runs.

Writes docs/accuracy.md, the table in the README, and raw samples.

    .venv/bin/python benchmarks/accuracy.py

For every number of threads and every batch size a fresh cache is filled: bricks and whole models
are sampled in turn, model by model. Then a part of the zoo is cut at several granularities. Raw
results go to benchmarks/results/accuracy.json, in microseconds, and each model's estimate beside
its measured latency to benchmarks/results/accuracy_models.json, which ``--by-model`` prints. With
44 models, it takes a quarter of an hour; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import transfer

from bricks import Bench, Comparison, Measurement, ModelComparison
from bricks.estimate.estimate import Estimate
from bricks.estimate.recompose import IN_WALK_CALL_FACTOR, recompose, state_of
from bricks.estimate.uncertainty import CALL_SHARE, STATE_SHARE, composition_s
from bricks.measure.campaign import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent, seconds
from bricks.samples.call_overhead import PROBES
from bricks.samples.machine_state import same_state, states
from bricks.samples.statistics import median
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "accuracy.json"
MODELS = ROOT / "benchmarks" / "results" / "accuracy_models.json"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
MARKS = ("<!-- accuracy: written by benchmarks/accuracy.py -->", "<!-- /accuracy -->")

FAMILIES = {entry.name: entry.family for entry in entries()}
# Models that are cut at several granularities: one of each kind, none of them large.
CUT = (
    "squeezenet", "resnet18", "mobilenet_v2", "shufflenet", "inception_v1", "gluon_mobilenet025",
    "bert_mini", "gpt2", "vit_tiny", "convnext", "poolformer", "wav2vec2",
)  # fmt: skip
# Factors on the call overhead that are compared.
CALLS = tuple(round(0.8 + 0.1 * i, 1) for i in range(13))
GRANULARITIES = ("executed", "1", "2", "3", "5", "10")

HEAD = """# How accurate estimates are

Written by `benchmarks/accuracy.py` on {date}, on {system} with {backend}
{version}; raw results are in `benchmarks/results/accuracy.json`, in microseconds.
"""

METHOD = """
Each case compares the [estimates](glossary.md#estimate) of {models} of the zoo's {zoo} models, at
[granularity](glossary.md#granularity) `executed`, with runs of the whole models. It starts with an
empty cache, and samples models and [bricks](glossary.md#brick) in
[alternation](measuring.md#alternating-rounds), to a precision of {precision} with 8 to {rounds}
[rounds](glossary.md#round); latencies are medians. A brick that an earlier model shares is measured
again only if the [machine state](glossary.md#machine-state) has changed. All figures are from one
session: single models move by a few percent between sessions, and by more with two threads if the
host moves virtual processors.

One constant of estimates was chosen on these models ([below](#what-a-call-costs)), and two
constants of the [intervals](#intervals).

This command writes the page anew for your machine, with all models of the zoo (`--models` selects
fewer):

    .venv/bin/python benchmarks/accuracy.py
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A comparison of the zoo at one number of threads and one batch size."""

    threads: int
    batch: int
    comparison: Comparison
    states: dict[float, int]
    ratios: dict[str, dict[float, float]]  # by model, for each of CALLS

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}, batch {self.batch}"

    @property
    def rows(self) -> list[ModelComparison]:
        """The models that could be compared."""
        return [row for row in self.comparison.rows if isinstance(row, ModelComparison)]


def main() -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--max-rounds", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=list(FAMILIES))
    parser.add_argument(
        "--by-model", action="store_true", help="Only print a row for each model of the results."
    )
    arguments = parser.parse_args()
    if arguments.by_model:
        print(by_model(json.loads(MODELS.read_text(encoding="utf-8"))))
        return
    rule = StopRule(precision=arguments.precision, max_rounds=arguments.max_rounds)
    cases, raw, rows = [], {}, {}
    RAW.parent.mkdir(exist_ok=True)
    for batch in arguments.batches:
        for threads in arguments.threads:
            with fresh(rule, threads=threads) as bench:
                models = [bench.read(name, batch=batch) for name in arguments.models]
                comparison = bench.compare(models)
                states = states_of(bench, comparison)
                case = Case(threads, batch, comparison, states, ratios_of(bench, comparison))
                raw[case.title] = samples(bench, case)
            cases.append(case)
            # At once, so that nothing measured is lost whatever follows.
            RAW.write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")
            rows[case.title] = compared(case)
            MODELS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    cuts = granularities([n for n in CUT if n in arguments.models], rule)
    target = cases[0].comparison.target
    head = HEAD.format(
        date=datetime.now(UTC).date(),
        system=target.system.name,
        backend=target.runtime.backend,
        version=target.runtime.version,
    )
    method = METHOD.format(
        models=len(arguments.models),
        zoo=len(FAMILIES),
        precision=arguments.precision,
        rounds=arguments.max_rounds,
    )
    parts = [head, conclusion(cases), "", overview(cases), method]
    parts += [calls(cases), intervals(cases), cuts]
    parts += [largest_errors(rows), conduct(cases)]
    parts += kept()
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    write_readme(cases)


@contextmanager
def fresh(rule: StopRule, **changes: Any) -> Iterator[Bench]:
    """A bench with an empty cache."""
    conditions = Conditions(rule=rule)
    with (
        tempfile.TemporaryDirectory() as cache,
        Bench(cache, conditions=conditions, **changes) as bench,
    ):
        yield bench


def states_of(bench: Bench, comparison: Comparison) -> dict[float, int]:
    """The machine states that occurred, with the number of models run mostly in each."""
    digests = [row.plan.digest for row in comparison.rows if isinstance(row, ModelComparison)]
    found = bench.store.results(comparison.target.key, digests).values()
    met = [m.state_s for m in found if isinstance(m, Measurement) and m.state_s is not None]
    return {s: sum(same_state(s, one) for one in met) for s in states(met) if s is not None}


def ratios_of(bench: Bench, comparison: Comparison) -> dict[str, dict[float, float]]:
    """Estimate over measured latency, by model, for every factor on the call overhead."""
    found = {}
    for row in comparison.rows:
        if not isinstance(row, ModelComparison):
            continue
        keys = [*row.plan.keys, row.plan.digest, *PROBES.values()]
        results = bench.store.results(comparison.target.key, keys)
        whole = results[row.plan.digest]
        assert isinstance(whole, Measurement)
        state_s = state_of(row.plan, results, whole)
        of_model = {}
        for factor in CALLS:
            estimate = recompose(row.plan, results, state_s, in_walk_call_factor=factor)
            assert isinstance(estimate, Estimate)
            of_model[factor] = estimate.estimate_s / row.measured.median_s
        found[row.model] = of_model
    return found


def samples(bench: Bench, case: Case) -> dict[str, Any]:
    """Rounds of every model, and every brick's median, in microseconds to four digits."""
    names = {row.plan.digest: row.model for row in case.rows}
    keys = sorted({key for row in case.rows for key in row.plan.keys})
    kept: dict[str, Any] = {"models": {}, "bricks": {}}
    found = bench.store.results(case.comparison.target.key, [*names, *keys])
    for key, result in found.items():
        if not isinstance(result, Measurement):
            continue
        rounds = [_micro(r.latency_s) for r in result.rounds]
        if key in names:
            kept["models"][names[key]] = rounds
        else:
            kept["bricks"][key] = _micro(result.latency_s())
    return kept


def _micro(latency_s: float, digits: int = 4) -> float:
    return float(f"{latency_s * 1e6:.{digits}g}")


def conclusion(cases: Sequence[Case]) -> str:
    """The errors over all cases, in words."""
    rows = [row for case in cases for row in case.rows]
    errors = [abs(row.ratio - 1) for row in rows]
    inside = sum(abs(_miss_s(row)) <= _half_s(row) for row in rows) / len(rows)
    return (
        f"Half of all estimates are within {percent(median(errors))} of the measured latency and"
        f" 95 % within {percent(_quantile(errors, 0.95))}; the worst is {percent(max(errors))} off."
        f" {percent(inside, 0)} of the measured latencies lie inside the estimate's interval."
    )


def overview(cases: Sequence[Case]) -> str:
    """One row for each case, one for all of them."""
    lines = [
        "| | median error | 95th percentile | worst | geometric mean | noise floor"
        " | inside the interval |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case in cases:
        s = case.comparison.summary
        values = (s.median_abs_error, s.p95_abs_error, s.max_abs_error)
        lines.append(
            f"| {case.title} | {' | '.join(percent(v) for v in values)}"
            f" | {number(s.geomean_ratio, 3)} | {percent(s.noise_floor)}"
            f" | {percent(s.interval_hit_rate, 0)} |"
        )
    rows = [row for case in cases for row in case.rows]
    errors = sorted(abs(row.ratio - 1) for row in rows)
    late = errors[math.ceil(0.95 * len(errors)) - 1]
    geomean = math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))
    inside = sum(abs(_miss_s(row)) <= _half_s(row) for row in rows) / len(rows)
    lines.append(
        f"| all {len(rows)} | {percent(median(errors))} | {percent(late)} | {percent(errors[-1])}"
        f" | {number(geomean, 3)} | | {percent(inside, 0)} |"
    )
    lines += [
        "",
        "Error is |estimate / measured - 1|. The noise floor is the error of whole models against"
        " themselves, between two series that were sampled in alternation in the same session.",
    ]
    lost = [f"{case.title}: {r.error}" for case in cases for r in case.comparison.rows
            if not isinstance(r, ModelComparison)]  # fmt: skip
    return "\n".join([*lines, *(f"\nNot compared: {text}" for text in lost)])


def _miss_s(row: ModelComparison) -> float:
    return row.measured.median_s - row.estimate.estimate_s


def _half_s(row: ModelComparison) -> float:
    return (row.estimate.high_s - row.estimate.low_s) / 2


def _needed(row: ModelComparison) -> float:
    """The factor by which the composition part of intervals would have to be wider."""
    part = _composing_s(row)
    return max(0.0, abs(_miss_s(row)) - (_half_s(row) - part)) / part


def _composing_s(row: ModelComparison) -> float:
    estimate = row.estimate
    total_s = estimate.estimate_s - estimate.call_overhead_s
    return composition_s(total_s, len(row.plan.occurrences), estimate.call_overhead_s)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def calls(cases: Sequence[Case]) -> str:
    """The effect of the chosen factor on the call overhead; families are left out of the fit."""
    every = [(FAMILIES[model], of) for case in cases for model, of in case.ratios.items()]

    def best(kept: Sequence[dict[float, float]]) -> float:
        return min(CALLS, key=lambda f: sum(abs(of[f] - 1) for of in kept))

    left_out = {
        family: best([of for other, of in every if other != family])
        for family in sorted({family for family, _ in every})
    }
    chosen = sorted(set(left_out.values()))
    rows = {
        "1, what the probes say": [of[1.0] for _, of in every],
        f"{number(IN_WALK_CALL_FACTOR, 1)}, as shipped": [
            of[IN_WALK_CALL_FACTOR] for _, of in every
        ],
        f"best for all *other* families ({', '.join(number(f, 1) for f in chosen)})": [
            of[left_out[family]] for family, of in every
        ],
    }
    lines = [
        "## What a call costs",
        "",
        "An estimate subtracts the cost of a runtime call from every brick. The cost is"
        " [measured by probes](measuring.md#what-a-call-costs) and multiplied by a factor that was"
        " chosen once, in an earlier session over the same models.",
        "",
        "| factor | median error | 95th percentile | worst | geometric mean |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, ratios in rows.items():
        errors = sorted(abs(r - 1) for r in ratios)
        late = errors[math.ceil(0.95 * len(errors)) - 1]
        geomean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
        lines.append(
            f"| {name} | {percent(median(errors))} | {percent(late)} | {percent(errors[-1])}"
            f" | {number(geomean, 3)} |"
        )
    fitted = best([of for _, of in every])
    return "\n".join([*lines, "", f"In this session the best factor is {number(fitted, 1)}.", ""])


def intervals(cases: Sequence[Case]) -> str:
    """How often intervals hold the latency; families are left out of the fit of their width."""
    rows = [row for case in cases for row in case.rows]
    bare = sum(abs(_miss_s(r)) <= _half_s(r) - _composing_s(r) for r in rows) / len(rows)
    shipped = sum(abs(_miss_s(r)) <= _half_s(r) for r in rows) / len(rows)
    hits, widths = [], []
    for family in sorted({FAMILIES[row.model] for row in rows}):
        others = [_needed(row) for row in rows if FAMILIES[row.model] != family]
        scale = _quantile(others, 0.95)
        for row in rows:
            if FAMILIES[row.model] == family:
                half_s = _half_s(row) + (scale - 1) * _composing_s(row)
                hits.append(abs(_miss_s(row)) <= half_s)
                widths.append(half_s / row.estimate.estimate_s)
    left_out = percent(sum(hits) / len(hits), 0)
    everything = _quantile([_needed(row) for row in rows], 0.95)
    shown = median([_half_s(row) / row.estimate.estimate_s for row in rows])
    return f"""## Intervals

An [interval](measuring.md#intervals) should contain the measured latency in 95 % of all cases. Its
first part is the spread of the samples. Its second part covers errors of recomposition:
{percent(STATE_SHARE)} of the latency, and {number(CALL_SHARE)} times a call's overhead for each
occurrence (`bricks/estimate/uncertainty.py`).

| width | inside | median half-width |
|---|--:|--:|
| samples alone | {percent(bare, 0)} | |
| as shipped | {percent(shipped, 0)} | {percent(shown)} |
| second part scaled, by 95 % of *other* families | {left_out} | {percent(median(widths))} |

In this session the second part would have to be {number(everything)} times as wide to hold 95 % of
all cases.
"""


def granularities(names: Sequence[str], rule: StopRule) -> str:
    """Errors and cost of estimates of some models, by granularity; one thread."""
    lines = [
        "## Granularities",
        "",
        f"{len(names)} models ({', '.join(names)}) with 1 thread and batch 1, cut into `executed`"
        " nodes, and into bricks of at most N layers of the source graph as in the DLBricks paper."
        " Each brick runs with all of the runtime's optimisations.",
        "",
        "| granularity | bricks | occurrences | median error | worst | geometric mean"
        " | latencies, models / bricks | wall time of bricks |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for granularity in GRANULARITIES:
        with fresh(rule, threads=1, granularity=granularity) as bench:
            s = bench.compare([bench.read(name) for name in names]).summary
        lines.append(
            f"| {granularity} | {s.bricks} | {s.occurrences} | {percent(s.median_abs_error)}"
            f" | {percent(s.max_abs_error)} | {number(s.geomean_ratio, 3)}"
            f" | {number(s.speedup_latency)} | {seconds(s.bricks_wall_s)} |"
        )
    return "\n".join([*lines, ""])


def compared(case: Case) -> list[dict[str, Any]]:
    """Each model's estimate and interval beside its measured latency, as a reader needs them."""
    return [
        {
            "model": row.model,
            "occurrences": len(row.plan.occurrences),
            "bricks": len(row.plan.keys),
            "measured_us": _micro(row.measured.median_s, 3),
            "estimate_us": _micro(row.estimate.estimate_s, 3),
            "low_us": _micro(row.estimate.low_s, 3),
            "high_us": _micro(row.estimate.high_s, 3),
            "ratio": round(row.ratio, 3),
        }
        for row in case.rows
    ]


def by_model(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A table for each case, with a row for each model."""
    parts = []
    for title, rows in results.items():
        lines = [
            f"## {title}",
            "",
            "| model | occurrences | bricks | measured | estimate | interval | ratio |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for row in rows:
            shown = [seconds(row[f"{name}_us"] / 1e6) for name in ("measured", "estimate")]
            interval = " … ".join(seconds(row[f"{name}_us"] / 1e6) for name in ("low", "high"))
            cells = [row["model"], str(row["occurrences"]), str(row["bricks"]), *shown, interval]
            lines.append(f"| {' | '.join([*cells, number(row['ratio'], 3)])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def largest_errors(results: Mapping[str, Sequence[Mapping[str, Any]]], *, most: int = 10) -> str:
    """The models with the largest errors of each case."""
    worst = [
        sorted(rows, key=lambda row: -abs(row["ratio"] - 1))[:most] for rows in results.values()
    ]
    lines = [
        "## Largest errors",
        "",
        "Models with the largest errors, as estimate over measured latency. All models, with",
        "measured latency, estimate and interval to three digits, are in",
        "`benchmarks/results/accuracy_models.json`; `benchmarks/accuracy.py --by-model` prints"
        " them.",
        "",
        f"| {' | '.join(f'{title} | ratio' for title in results)} |",
        f"|{'---|--:|' * len(results)}",
    ]
    for each in zip(*worst, strict=True):
        cells = [cell for row in each for cell in (row["model"], number(row["ratio"], 3))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def conduct(cases: Sequence[Case]) -> str:
    """How the measurements of each case went."""
    lines = [
        "## Conduct of the measurements",
        "",
        "Disturbed rounds were left out; some bricks are measured again after a change of state.",
        "Machine states are named by the latency of the reference workload. Ratios are those of",
        "all models to all unique bricks.",
        "",
        "| | disturbed rounds | measured again | machine states | ratio of latencies"
        " | ratio of wall times |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for case in cases:
        comparison, s = case.comparison, case.comparison.summary
        met = ", ".join(f"{seconds(state)} ({n} models)" for state, n in case.states.items())
        lines.append(
            f"| {case.title} | {comparison.disturbed_rounds} of {comparison.rounds}"
            f" | {comparison.remeasured_bricks} | {met} | {number(s.speedup_latency)}"
            f" | {number(s.speedup_wall)} ({seconds(s.models_wall_s)} /"
            f" {seconds(s.bricks_wall_s)}) |"
        )
    return "\n".join([*lines, ""])


def kept() -> list[str]:
    """The part of the page that benchmarks/transfer.py wrote."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    begin, end = transfer.MARKS
    return [text[text.index(begin) : text.index(end) + len(end)] + "\n"] if begin in text else []


def write_readme(cases: Sequence[Case]) -> None:
    """Write the summary table between the marks in the README."""
    target = cases[0].comparison.target
    models = len(cases[0].comparison.rows)
    which = f"The {models}" if models == len(FAMILIES) else f"{models} of the"
    lines = [
        overview(cases).split("\n\n")[0],
        "",
        f"{which} shipped models, CNNs and transformers, on {target.system.name} with"
        f" {target.runtime.backend} {target.runtime.version}: |estimate / measured - 1|. From"
        " `benchmarks/accuracy.py`; see [how accurate estimates are](docs/accuracy.md).",
    ]
    put_into_readme(MARKS, "\n".join(lines))


def put_into_readme(marks: tuple[str, str], what: str) -> None:
    """Replace the text between two marks with ``what``."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(marks[0])
    after = rest.split(marks[1])[1]
    README.write_text(f"{before}{marks[0]}\n{what}\n{marks[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
