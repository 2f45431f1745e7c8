"""Renders docs/performance.md from what cost.py found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bricks.report.tables import number, percent
from bricks.samples.statistics import median

Facts = Mapping[str, Any]

# No more of an estimate than this is from another state of the machine than that of the run.
_OF_ONE = 0.1

HEAD = """# What benchmarking costs

Written by `benchmarks/cost.py` on {date}, on {system} with {backend} {version}, {threads} threads;
raw results are in `benchmarks/results/cost.json`.

To see what it costs on your machine, leave it to this for about half an hour; it writes this page
anew:

    .venv/bin/python benchmarks/cost.py

{models} models, each measured as a whole ("models"), and by bricks at each effort. All of it is
one session: the four took turns of some two seconds, with a cache and a worker of their own, so
that all met the same drift of the machine. Everything is counted, from reading files to the last
sample; models are decomposed once for all, and at hand from then on, as in a command that measures
what it has decomposed. One stop rule holds on both sides: a latency is sampled until it is known to
± {precision}, 8 rounds at least and 24 at most for what is all of a model; see
[how many samples](measuring.md#how-many-samples).
"""


def page(facts: Facts, noisy: Facts) -> str:
    """All of the page; ``noisy`` are the facts of another run, on a machine that is not quiet."""
    return "\n".join(
        [
            HEAD.format(**facts["about"], models=facts["models"], precision="1 %"),
            *_efforts(facts),
            *_on_noisy(noisy),
            *_shares(facts),
            *_adding(facts),
            *_unseen(facts),
            *_processes(facts),
            "",
        ]
    )


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
        "And how far estimates are from what the models took; below each effort, the same of those"
        " models nine tenths of whose estimate are from the state of the machine in which the model"
        " was run:",
        "",
        *_errors(facts),
        "",
        f"The models themselves were run twice more, at other times of the same session: latencies"
        f" were {percent(median(noise))} from those of the first time in the median, and"
        f" {percent(quantile(noise, 0.95))} in the 95th percentile: the machine has"
        " [states](measuring.md#states-of-a-machine). Within one state, it was"
        f" {percent(median(same))} and {percent(quantile(same, 0.95))}. That is how well running a"
        " model tells what it takes some minutes later, and no estimate can be nearer but by"
        " chance. What a model took is the geometric mean of the three, in that state in which"
        " most of its bricks are known or predicted.",
        "",
        f"Who runs each model as seldom as the rule allows, 8 rounds, needs about"
        f" {_s(facts['fewest_s'])}: that is {_times(facts)} as long as the efforts above.",
    ]


def _on_noisy(facts: Facts) -> list[str]:
    noise, about = facts["noise"], facts["about"]
    return [
        "",
        "## The same where it is not quiet",
        "",
        f"The same run on {about['system']}, on {about['date']}: a shared host, on which models"
        f" that were run again were {percent(median(noise))} from the first time in the median, and"
        f" {percent(quantile(noise, 0.95))} in the 95th percentile. More has to be sampled for the"
        " same precision, of bricks most of all, and nothing is known as well: neither by bricks"
        " nor by running models.",
        "",
        *_costs(facts),
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
            ("of one state", [r for r in effort["rows"] if r["other_state_share"] <= _OF_ONE]),
        )
        if rows
    ]
    for title, rows in groups:
        errors = [abs(r["estimate_s"] / r["measured_s"] - 1) for r in rows]
        logs = [math.log(r["estimate_s"] / r["measured_s"]) for r in rows]
        inside = [r["low_s"] <= r["measured_s"] <= r["high_s"] for r in rows]
        half = [(r["high_s"] - r["low_s"]) / 2 / r["estimate_s"] for r in rows]
        cells = [
            str(len(rows)),
            percent(median(errors)),
            percent(quantile(errors, 0.95)),
            percent(max(errors)),
        ]
        cells += [number(math.exp(sum(logs) / len(logs)), 3), percent(sum(inside) / len(rows), 0)]
        cells += [percent(median(half)), percent(median([r["predicted_share"] for r in rows]), 0)]
        lines.append(_row(title, cells))
    return lines


def _times(facts: Facts) -> str:
    of = [facts["fewest_s"] / effort["all_s"] for effort in facts["efforts"].values()]
    return ", ".join(f"{number(each, 1)}" for each in of) + " times"


def _shares(facts: Facts) -> list[str]:
    before, after = facts["profiles"]["before"], facts["profiles"]["after"]
    names = sorted(
        {*before["seconds"], *after["seconds"]}, key=lambda n: -before["seconds"].get(n, 0)
    )
    totals = [sum(p["seconds"].values()) for p in (before, after)]
    lines = [
        "",
        "## Where the time goes",
        "",
        f"Measuring the zoo's bricks with nothing cached, all of them: before"
        f" (on {before['system']}, {before['what']}) and now. Of two machines only shares compare.",
        "",
        "| | before | | now | |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in names:
        cells = []
        for profile, total in zip((before, after), totals, strict=True):
            seconds = profile["seconds"].get(name)
            cells += ["", ""] if seconds is None else [_s(seconds), percent(seconds / total)]
        lines.append(_row(name, cells))
    lines.append(_row("in all", [_s(totals[0]), "", _s(totals[1]), ""]))
    return lines


def _adding(facts: Facts) -> list[str]:
    *single, together = facts["adding"]["rows"]
    if not single:
        return []
    about = facts["adding"]["about"]
    elsewhere = "" if about == facts["about"] else f" (On {about['system']}, {about['date']}.)"
    efforts = list(together["adding_s"])
    alone_s = sum(row["alone_s"] for row in single)
    added_s = [sum(row["adding_s"][effort] for row in single) for effort in efforts]
    shares = [median([r["adding_s"][effort] / r["alone_s"] for r in single]) for effort in efforts]
    sums = [cell for s in added_s for cell in (_s(s), percent(s / alone_s), "")]
    heads = "".join(f" `{effort}` | | new |" for effort in efforts)
    return [
        "",
        "## One model more",
        "",
        f"One model of each of {len(single)} families with several is taken out of the cache, with"
        " all bricks that only it needs, and added again, at each effort to the cache of that"
        " effort; beside it, what running the model itself takes under the same rule, right after."
        " Each is a process of its own, timed from when this package is imported: no worker has"
        " been started, the model's file is not read, and what only predictions need is not"
        " imported. The columns without a head are of adding as a share of running; `new` are"
        " bricks that were measured: where `full` has none, all of it is starting a worker and"
        " decomposing. The last row is of one command that adds all of them." + elsewhere,
        "",
        f"| model | bricks | alone |{heads}",
        "|---|--:|--:|" + "--:|--:|--:|" * len(efforts),
        *(_added(row["models"][0], row) for row in single),
        _row("median", ["", "", *(cell for s in shares for cell in ("", percent(s), ""))]),
        _row("sum", ["", _s(alone_s), *sums]),
        _added("all at once", together),
    ]


def _added(name: str, row: Facts) -> str:
    cells = [str(row["bricks"]), _s(row["alone_s"])]
    for effort, seconds in row["adding_s"].items():
        cells += [_s(seconds), percent(seconds / row["alone_s"]), str(row["new_bricks"][effort])]
    return _row(name, cells)


def _unseen(facts: Facts) -> list[str]:
    if not facts.get("unseen"):
        return []
    return [
        "",
        "## Models of families never seen",
        "",
        "`bricks predict --no-measure`, with all other families measured: one family left out at"
        " a time. Bricks that other families have too are measured; the others are predicted. The"
        " roofline has rates for each kernel, fitted to the same bricks; the nearest brick is"
        " that of the same operator with the most similar attributes and sizes. What the predictor"
        " has of constants was chosen on the first half of the families (every second one in"
        " alphabetical order), in another session; what it looks at of a brick, and from how many"
        " bytes on weights are far away, was found on all.",
        "",
        *facts["unseen"],
    ]


def _processes(facts: Facts) -> list[str]:
    return [
        "",
        "## Whole processes",
        "",
        "| | |",
        "|---|--:|",
        *(_row(name, [f"{seconds:.2f} s"]) for name, seconds in facts["processes"].items()),
    ]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _s(value: float) -> str:
    return f"{value:.1f} s"
