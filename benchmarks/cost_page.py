"""Renders docs/performance.md from the results of cost.py and prediction.py."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import prediction_page
from page_parts import ratios_of

from bricks.report.tables import number, percent
from bricks.samples.statistics import median

Facts = Mapping[str, Any]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"

# At most this share of an estimate comes from another machine state than that of the run.
_OF_ONE = 0.1

HEAD = """# What benchmarking costs

Written by `benchmarks/cost.py` on {date}, on {system} with {backend} {version}, {threads} threads;
raw results are in `benchmarks/results/cost.json`. `benchmarks/cost.py --tables` prints the tables
with a row for each model, which this page sums up.

{conclusion}

This script takes about half an hour to measure the same on your machine, and rewrites this page:

    .venv/bin/python benchmarks/cost.py

Whole models and [efforts](glossary.md#effort) are measured in one session, in turns of about two
seconds, each with a cache and a worker of its own, so that all meet the same drift of the machine.
Times include everything from reading files to the last sample; models are decomposed once, which
counts for every effort. All share one stop rule: a latency is sampled until it is known to
± {precision}, in 8 to 24 [rounds](glossary.md#round) for a whole model
([how many samples](measuring.md#how-many-samples)).
"""


def write() -> None:
    """Write the page from the raw results: of cost.py here and on a noisy host, and others'."""
    names = ("cost", "cost_noisy", "prediction")
    found = [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    PAGE.write_text(page(*found), encoding="utf-8")


def keep(facts: Facts, name: str) -> None:
    """Keep raw results under this name, to four digits."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(_short(facts), separators=(",", ":"))
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _short(facts: Any) -> Any:
    if isinstance(facts, float):
        return float(f"{facts:.4g}")
    if isinstance(facts, Mapping):
        return {key: _short(value) for key, value in facts.items()}
    return [_short(value) for value in facts] if isinstance(facts, list) else facts


def page(facts: Facts, noisy: Facts, predictions: Facts) -> str:
    """The whole page; ``noisy`` are the facts of another run, on a noisy host.

    ``predictions`` are those of prediction.py.
    """
    head = facts["about"] | {"conclusion": _conclusion(facts), "precision": "1 %"}
    return "\n".join(
        [
            HEAD.format(**head),
            *_efforts(facts),
            *_on_noisy(noisy),
            *_shares(facts),
            *_adding(facts),
            *prediction_page.section(predictions),
            *_processes(facts),
            "",
        ]
    )


def _conclusion(facts: Facts) -> str:
    efforts = [
        f"{_s(effort['all_s'])} with `--effort {name}` ({_errors_in_words(effort['rows'])})"
        for name, effort in facts["efforts"].items()
    ]
    return (
        f"Running each of {facts['models']} models takes {_s(facts['all_s'])}. Measuring their"
        f" [bricks](glossary.md#brick) takes {_joined(efforts)}."
    )


def _errors_in_words(rows: Sequence[Facts]) -> str:
    ratios = ratios_of(rows)
    error = percent(median([abs(ratio - 1) for ratio in ratios]))
    return f"median error {error}, geometric mean of ratios {number(geometric_mean(ratios), 3)}"


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _efforts(facts: Facts) -> list[str]:
    noise, same = facts["noise"], facts["noise_in_state"]
    return [
        "## The whole zoo",
        "",
        *_costs(facts),
        "",
        f"Errors of the estimates{_note_on_states(facts)}:",
        "",
        *_errors(facts),
        "",
        "Models with the largest errors, as estimate over measured latency:",
        "",
        *_worst(facts),
        "",
        "No estimate can be more accurate than running the model again, except by chance: two more"
        f" runs in the same session differ from the first by {percent(median(noise))} in the median"
        f" and {percent(quantile(noise, 0.95))} at the 95th percentile, within one machine state by"
        f" {percent(median(same))} and {percent(quantile(same, 0.95))}. Errors are against the"
        " geometric mean of the three runs, in the state in which most of the model's bricks are"
        " measured or predicted.",
        "",
        "Running each model for 8 rounds, the fewest that the rule allows, would take about"
        f" {_s(facts['fewest_s'])}: {_times(facts)} as long as the efforts above.",
    ]


def _note_on_states(facts: Facts) -> str:
    every = [row for effort in facts["efforts"].values() for row in effort["rows"]]
    if not _in_one_state(every):
        return (
            "; of each, nine tenths or more come from the [machine"
            " state](glossary.md#machine-state) in which the model was run"
        )
    return (
        "; *of one state* are those models for which nine tenths of the estimate come from the"
        " [machine state](glossary.md#machine-state) in which the model was run"
    )


def _on_noisy(facts: Facts) -> list[str]:
    noise, about = facts["noise"], facts["about"]
    return [
        "",
        "## On a noisy host",
        "",
        "On a noisy host the same precision needs more samples, and both estimates and runs of"
        " whole models are less accurate. The same run on a shared host"
        f" ({about['system']}, {about['date']}), where repeated runs differ from the first by"
        f" {percent(median(noise))} in the median and {percent(quantile(noise, 0.95))} at the 95th"
        " percentile:",
        "",
        *_costs(facts),
        "",
        f"Errors of the estimates{_note_on_states(facts)}:",
        "",
        *_errors(facts),
    ]


def _costs(facts: Facts) -> list[str]:
    lines = [
        "| | reading | decomposing | measuring | in all | `speedup_wall` | bricks measured |"
        " rounds |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        _row("models", [_s(facts["reading_s"]), "", _s(facts["models_s"]), _s(facts["all_s"]), "1",
                        "", str(facts["rounds"])]),
    ]  # fmt: skip
    for name, effort in facts["efforts"].items():
        cells = [_s(facts["reading_s"]), _s(facts["decomposing_s"]), _s(effort["measuring_s"])]
        cells += [_s(effort["all_s"]), number(effort["speedup_wall"], 1)]
        cells += [f"{effort['measured_bricks']} of {effort['bricks']}", str(effort["rounds"])]
        lines.append(_row(f"`--effort {name}`", cells))
    return lines


def _errors(facts: Facts) -> list[str]:
    lines = [
        "| | models | median error | 95th percentile | worst | geometric mean of ratios"
        " | inside the interval | half the interval, median | predicted share, median |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups = [
        (title, rows)
        for name, effort in facts["efforts"].items()
        for title, rows in (
            (f"`--effort {name}`", effort["rows"]),
            ("of one state", _in_one_state(effort["rows"])),
        )
        if rows
    ]
    for title, rows in groups:
        ratios = ratios_of(rows)
        errors = [abs(ratio - 1) for ratio in ratios]
        inside = [r["low_s"] <= r["measured_s"] <= r["high_s"] for r in rows]
        half = [(r["high_s"] - r["low_s"]) / 2 / r["estimate_s"] for r in rows]
        cells = [
            str(len(rows)),
            percent(median(errors)),
            percent(quantile(errors, 0.95)),
            percent(max(errors)),
        ]
        cells += [number(geometric_mean(ratios), 3), percent(sum(inside) / len(rows), 0)]
        cells += [percent(median(half)), percent(median([r["predicted_share"] for r in rows]), 0)]
        lines.append(_row(title, cells))
    return lines


def _in_one_state(rows: Sequence[Facts]) -> list[Facts]:
    """The models whose estimates come from one state; none if that holds for all models."""
    some = [row for row in rows if row["other_state_share"] <= _OF_ONE]
    return some if len(some) < len(rows) else []


def _times(facts: Facts) -> str:
    of = [facts["fewest_s"] / effort["all_s"] for effort in facts["efforts"].values()]
    return ", ".join(f"{number(each, 1)}" for each in of) + " times"


def _shares(facts: Facts) -> list[str]:
    profile = facts["profiles"]["after"]["seconds"]
    total_s = sum(profile.values())
    return [
        "",
        "## Where the time goes",
        "",
        "Measuring all bricks of the zoo with nothing cached"
        " ([an earlier scheme](design-experiments.md#equal-rounds-for-all-bricks) took as long as"
        " running the models):",
        "",
        "| | | |",
        "|---|--:|--:|",
        *(
            _row(name, [_s(seconds), percent(seconds / total_s)])
            for name, seconds in sorted(profile.items(), key=lambda item: -item[1])
        ),
        _row("in all", [_s(total_s), ""]),
    ]


def _adding(facts: Facts) -> list[str]:
    *single, together = facts["adding"]["rows"]
    if not single:
        return []
    about = facts["adding"]["about"]
    elsewhere = (
        "" if about == facts["about"] else f" Measured on {about['system']}, {about['date']}."
    )
    efforts = list(together["adding_s"])
    alone_s = sum(row["alone_s"] for row in single)
    added_s = [sum(row["adding_s"][effort] for row in single) for effort in efforts]
    shares = [median([r["adding_s"][effort] / r["alone_s"] for r in single]) for effort in efforts]
    sums = [cell for s in added_s for cell in (_s(s), percent(s / alone_s), "")]
    spans = [[row["adding_s"][effort] / row["alone_s"] for row in single] for effort in efforts]
    ends = [cell for of in spans for cell in ("", f"{percent(min(of))} … {percent(max(of))}", "")]
    return [
        "",
        "## Adding a model",
        "",
        "Adding one model to a measured cache takes"
        f" {_joined([percent(share) for share in shares])} of the time that running the model takes"
        f" (medians, with {_joined([f'`{effort}`' for effort in efforts])}).{elsewhere}",
        "",
        f"From the cache of each effort, one model of each of {len(single)} families with several"
        " was removed, with all bricks that only it needs, and added again; the last row adds all"
        " of them by one command. *alone* is running the model itself under the same rule, right"
        " after. Each is a process of its own, timed from when it has imported bricks. Columns"
        " without a head are shares of *alone*; *new* are bricks that were measured.",
        "",
        *_adding_head("models", efforts),
        _row("median", ["", "", *(cell for s in shares for cell in ("", percent(s), ""))]),
        _row("range", ["", "", *ends]),
        _row("sum", ["", _s(alone_s), *sums]),
        _added("all at once", together),
        *_in_session(facts["adding"]["in_session"]),
    ]


def _in_session(rows: Sequence[Facts]) -> list[str]:
    lines = []
    for effort in rows[0]["adding_s"]:
        shares = [row["adding_s"][effort] / row["alone_s"] for row in rows]
        added_s = sum(row["adding_s"][effort] for row in rows)
        alone_s = sum(row["alone_s"] for row in rows)
        cells = [percent(median(shares)), f"{percent(min(shares))} … {percent(max(shares))}"]
        cells += [_s(added_s), percent(added_s / alone_s)]
        lines.append(_row(f"`{effort}`", [*cells, str(sum(r["new_bricks"][effort] for r in rows))]))
    return [
        "",
        "Inside one session, whose workers run, all these models were removed, and added in turn"
        " (reading the file, decomposing it and measuring its bricks), each right after it was read"
        " and run itself:",
        "",
        "| effort | share of *alone*, median | range | in all | share of running all | new |",
        "|---|--:|--:|--:|--:|--:|",
        *lines,
    ]


def _adding_head(first: str, efforts: Sequence[str]) -> list[str]:
    heads = "".join(f" `{effort}` | | new |" for effort in efforts)
    return [f"| {first} | bricks | alone |{heads}", "|---|--:|--:|" + "--:|--:|--:|" * len(efforts)]


def _added(name: str, row: Facts) -> str:
    cells = [str(row["bricks"]), _s(row["alone_s"])]
    for effort, seconds in row["adding_s"].items():
        cells += [_s(seconds), percent(seconds / row["alone_s"]), str(row["new_bricks"][effort])]
    return _row(name, cells)


def tables(facts: Facts) -> str:
    """The tables of which the page shows a summary: a row for each model, and for each half."""
    parts = []
    for name, effort in facts["efforts"].items():
        parts += [f"## Estimates with `--effort {name}`", "", *_estimates(effort["rows"]), ""]
    *single, _ = facts["adding"]["rows"]
    parts += ["## Adding a model", "", *_adding_head("model", list(facts["efforts"]))]
    parts += [_added(row["models"][0], row) for row in single]
    return "\n".join(parts)


def _estimates(rows: Sequence[Facts]) -> list[str]:
    lines = [
        "| model | measured, s | estimate, s | interval, s | estimate / measured | predicted |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [f"{row['measured_s']:.4g}", f"{row['estimate_s']:.4g}"]
        cells += [f"{row['low_s']:.4g} … {row['high_s']:.4g}", number(_ratio(row), 3)]
        lines.append(_row(row["model"], [*cells, percent(row["predicted_share"], 0)]))
    return lines


def _worst(facts: Facts) -> list[str]:
    """The ten models with the largest errors at each effort."""
    columns = [
        sorted(effort["rows"], key=lambda row: -abs(_ratio(row) - 1))[:10]
        for effort in facts["efforts"].values()
    ]
    cells = [
        [cell for row in rows for cell in (row["model"], number(_ratio(row), 3))]
        for rows in zip(*columns, strict=True)
    ]
    heads = [cell for name in facts["efforts"] for cell in (f"`--effort {name}`", "ratio")]
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|--:|' * len(columns)}",
        *(_row(first, rest) for first, *rest in cells),
    ]


def _ratio(row: Facts) -> float:
    return float(row["estimate_s"] / row["measured_s"])


def _processes(facts: Facts) -> list[str]:
    return [
        "",
        "## Whole processes",
        "",
        "| | |",
        "|---|--:|",
        *(_row(name, [f"{seconds:.2f} s"]) for name, seconds in facts["processes"].items()),
    ]


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _s(value: float) -> str:
    return f"{value:.1f} s"
