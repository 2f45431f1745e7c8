"""Renders docs/accuracy.md and the README's table from the results of accuracy.py.

The newest host in detail, and a row for each host and case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import transfer
from accuracy_results import Calls, Errors, Figures, Host, Intervals, Row, file_of

from bricks.report.tables import number, percent, seconds
from bricks.samples.machine_state import same_state, states

MARKS = ("<!-- accuracy: written by benchmarks/accuracy.py -->", "<!-- /accuracy -->")

_HEAD = """# How accurate estimates are

Written by `benchmarks/accuracy.py` on {date}, on {system} with {backend}
{version}; results are in `{file}`, in microseconds.{note}
"""

_METHOD = """
Each case compares the [estimates](glossary.md#estimate) of {models} of the zoo's {zoo} ONNX
models, at [granularity](glossary.md#granularity) `executed`, with runs of the whole models. It
starts with an empty cache, and samples models and [bricks](glossary.md#brick) in
[alternation](measuring.md#alternating-rounds), to a precision of {precision} with 8 to {rounds}
[rounds](glossary.md#round); latencies are medians. A brick that an earlier model shares is measured
again only if the [machine state](glossary.md#machine-state) has changed. All figures are from one
session, in one piece or several: single models move by a few percent between sessions, and by more
with two threads if the host moves virtual processors.

One constant of estimates was chosen on models of the zoo ([below](#what-a-call-costs)), and two
constants of the [intervals](#intervals).

This command writes the page anew for your machine, with all models of the zoo (`--models` selects
fewer), and keeps the results of other hosts. It measures for twenty minutes; the next call goes on
from there:

    .venv/bin/python benchmarks/accuracy.py --minutes 20
"""

_COLUMNS = ("median error", "95th percentile", "worst", "geometric mean", "noise floor",
            "inside the interval")  # fmt: skip


def page(hosts: Sequence[Host], before: str) -> str:
    """The whole page; ``hosts`` begin with the newest. ``before`` is the page as it was.

    Of that the part stays that benchmarks/transfer.py wrote.
    """
    host = hosts[0]
    head = _HEAD.format(
        date=host.finished,
        system=host.system,
        backend=host.backend,
        version=host.version,
        file=Path("benchmarks/results/accuracy") / file_of(Path(), host.system),
        note="" if host.note is None else f" {host.note}",
    )
    method = _METHOD.format(
        models=host.models, zoo=host.zoo, precision=host.precision, rounds=host.max_rounds
    )
    parts = [head, conclusion(host), "", overview(host), method, all_hosts(hosts)]
    if host.calls is not None:
        parts.append(_calls(host.calls))
    if host.intervals is not None:
        parts.append(_intervals(host.intervals))
    if host.cuts:
        parts.append(_granularities(host))
    parts += [largest_errors(host), _conduct(host)]
    begin, end = transfer.MARKS
    if begin in before:
        parts.append(before[before.index(begin) : before.index(end) + len(end)] + "\n")
    return "\n".join(parts)


def conclusion(host: Host) -> str:
    """The errors over all cases, in words."""
    if host.figures is None:
        return "No model could be compared."
    errors = host.figures.errors
    return (
        f"Half of all estimates are within {percent(errors.median)} of the measured latency and"
        f" 95 % within {percent(errors.p95)}; the worst is {percent(errors.worst)} off."
        f" The geometric mean of estimate over measured is {number(errors.geomean_ratio, 3)}."
        f" {percent(host.figures.inside, 0)} of the measured latencies lie inside the estimate's"
        " interval."
    )


def overview(host: Host) -> str:
    """Rows for each case and its machine states, and one for all of them."""
    lines = [f"| | {' | '.join(_COLUMNS)} |", f"|---|{'--:|' * len(_COLUMNS)}"]
    for case in host.cases:
        lines += [f"| {each.title} | {_cells(each)} |" for each in case.figures[:1]]
        lines += [
            f"| – {each.title} ({_models(each.models)}) | {_cells(each)} |"
            for each in case.figures[1:]
        ]
    if host.figures is not None:
        lines.append(f"| {host.figures.title} | {_cells(host.figures)} |")
    lines += [
        "",
        "Error is |estimate / measured - 1|. The noise floor is the error of whole models against"
        " themselves, between two series that were sampled in alternation in the same session.",
    ]
    if any(len(case.figures) > 1 for case in host.cases):
        lines[-1] += (
            " A model is *between two states* if the machine changed its [state]"
            "(glossary.md#machine-state) between the model and a part of its bricks."
        )
    lost = [f"{case.title}: {error}" for case in host.cases for error in case.failures.values()]
    return "\n".join([*lines, *(f"\nNot compared: {text}" for text in lost)])


def _cells(figures: Figures) -> str:
    """The cells of a row of figures; what is not known stays empty."""
    noise = "" if figures.noise_floor is None else percent(figures.noise_floor)
    cells = [*_errors(figures.errors), noise, percent(figures.inside, 0)]
    return " | ".join(cells).replace("|  |", "| |")


def _errors(errors: Errors) -> list[str]:
    shown = [percent(value) for value in (errors.median, errors.p95, errors.worst)]
    return [*shown, number(errors.geomean_ratio, 3)]


def _models(count: int) -> str:
    return f"{count} {'model' if count == 1 else 'models'}"


def all_hosts(hosts: Sequence[Host]) -> str:
    """A row for each host and case."""
    lines = [
        "## Hosts",
        "",
        "Each host was measured in a session of its own. The rest of this page is about the first.",
        "",
        f"| host | case | models | {' | '.join(_COLUMNS)} |",
        f"|---|---|--:|{'--:|' * len(_COLUMNS)}",
    ]
    for host in hosts:
        name = f"{host.system}, {host.backend} {host.version}, {host.finished}"
        for figures in _by_case(host):
            lines.append(f"| {name} | {figures.title} | {figures.models} | {_cells(figures)} |")
    return "\n".join([*lines, ""])


def _by_case(host: Host) -> list[Figures]:
    """Figures of each case, and of all."""
    found = [case.figures[0] for case in host.cases if case.figures]
    return found if host.figures is None else [*found, host.figures]


def _calls(calls: Calls) -> str:
    """The effect of the chosen factor on the call overhead; families are left out of the fit."""
    left_out = ", ".join(number(factor, 1) for factor in calls.left_out_factors)
    rows = {
        "1, what the probes say": calls.one,
        f"{number(calls.shipped_factor, 1)}, as shipped": calls.shipped,
        f"best for all *other* families ({left_out})": calls.left_out,
    }
    lines = [
        "## What a call costs",
        "",
        "An estimate subtracts the cost of a runtime call from every brick. The cost is"
        " [measured by probes](measuring.md#what-a-call-costs) and multiplied by a factor that was"
        " chosen once, in an earlier session over models of the zoo.",
        "",
        "| factor | median error | 95th percentile | worst | geometric mean |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [f"| {name} | {' | '.join(_errors(errors))} |" for name, errors in rows.items()]
    best = f"In this session the best factor is {number(calls.best_factor, 1)}."
    return "\n".join([*lines, "", best, ""])


def _intervals(of: Intervals) -> str:
    """How often intervals hold the latency; families are left out of the fit of their width."""
    return f"""## Intervals

An [interval](measuring.md#intervals) should contain the measured latency in 95 % of all cases. Its
first part is the spread of the samples. Its second part covers errors of recomposition:
{percent(of.state_share)} of the latency, and {number(of.call_share)} times a call's overhead for each
occurrence, and a further share of what mostly reads weights (`bricks/compose/recomposition_error.py`).

| width | inside | median half-width |
|---|--:|--:|
| samples alone | {percent(of.samples_inside, 0)} | |
| as shipped | {percent(of.shipped_inside, 0)} | {percent(of.shipped_width)} |
| second part scaled, by 95 % of *other* families | {percent(of.left_out_inside, 0)} | {percent(of.left_out_width)} |

In this session the second part would have to be {number(of.scale)} times as wide to hold 95 % of
all cases.
"""  # noqa: E501  # a row of a table


def _granularities(host: Host) -> str:
    """Errors and cost of estimates of some models, by granularity; one thread."""
    names = host.cut_models
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
    lines += [
        f"| {cut.granularity} | {cut.bricks} | {cut.occurrences} | {percent(cut.median_error)}"
        f" | {percent(cut.worst_error)} | {number(cut.geomean_ratio, 3)}"
        f" | {number(cut.speedup_latency)} | {seconds(cut.bricks_wall_s)} |"
        for cut in host.cuts
    ]
    return "\n".join([*lines, ""])


def largest_errors(host: Host, *, most: int = 10) -> str:
    """The models with the largest errors of each case."""
    worst = [sorted(case.rows, key=lambda row: -row.error)[:most] for case in host.cases]
    lines = [
        "## Largest errors",
        "",
        "Models with the largest errors, as estimate over measured latency.",
        "`benchmarks/accuracy.py --by-model` prints all models of all hosts, with measured latency,"
        " estimate and interval.",
        "",
        f"| {' | '.join(f'{case.title} | ratio' for case in host.cases)} |",
        f"|{'---|--:|' * len(host.cases)}",
    ]
    for i in range(max(map(len, worst), default=0)):
        cells = [cell for rows in worst for cell in _worst(rows, i)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _worst(rows: Sequence[Row], number_: int) -> tuple[str, str]:
    """A model's name and ratio; nothing where a case has fewer models."""
    if number_ >= len(rows):
        return "", ""
    return rows[number_].model, number(rows[number_].ratio, 3)


def _conduct(host: Host) -> str:
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
    for case in host.cases:
        conduct, cost = case.conduct, case.cost
        ratios = ["–", "–"]
        if cost is not None:
            walls_s = cost.models_wall_s, cost.bricks_wall_s
            both = " / ".join(map(seconds, walls_s))
            ratios = [number(cost.speedup_latency), f"{number(walls_s[0] / walls_s[1])} ({both})"]
        lines.append(
            f"| {case.title} | {conduct.disturbed_rounds} of {conduct.rounds}"
            f" | {conduct.remeasured_bricks} | {_states(case.rows)} | {' | '.join(ratios)} |"
        )
    return "\n".join([*lines, ""])


def _states(rows: Sequence[Row]) -> str:
    """The machine states that models were run in, with the number of models."""
    known = [row.state_us for row in rows]
    found = []
    for state_us in states(known):
        if state_us is not None:
            count = sum(same_state(each, state_us) for each in known)
            found.append(f"{seconds(state_us / 1e6)} ({_models(count)})")
    return ", ".join(found)


def by_model(host: Host) -> str:
    """A table for each case, with a row for each model."""
    parts = []
    for case in host.cases:
        lines = [
            f"## {host.system}: {case.title}",
            "",
            "| model | occurrences | bricks | measured | estimate | interval | ratio | state |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for row in case.rows:
            measured, estimate, low, high = (
                seconds(each / 1e6)
                for each in (row.measured_us, row.estimate_us, row.low_us, row.high_us)
            )
            state = "" if row.state_us is None else seconds(row.state_us / 1e6)
            cells = [row.model, str(row.occurrences), str(row.bricks), measured, estimate]
            cells += [f"{low} … {high}", number(row.ratio, 3), state]
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def readme(hosts: Iterable[Host], before: str) -> str:
    """The README ``before``, with a block of rows for each host between the marks."""
    known = list(hosts)
    lines = [
        f"| on these processors | models | {' | '.join(_COLUMNS)} |",
        f"|---|--:|{'--:|' * len(_COLUMNS)}",
    ]
    for host in known:
        lines.append(f"| **{host.system}** | {'| ' * (len(_COLUMNS) + 1)}|")
        for figures in _by_case(host):
            lines.append(f"| {figures.title} | {figures.models} | {_cells(figures)} |")
    runtimes = " and ".join(sorted({f"{host.backend} {host.version}" for host in known}))
    lines += [
        "",
        f"Of the zoo's {known[0].zoo} ONNX models, CNNs and transformers, with {runtimes}:"
        " |estimate / measured - 1|. From `benchmarks/accuracy.py`; see [how accurate estimates"
        " are](docs/accuracy.md).",
    ]
    start, rest = before.split(MARKS[0])
    return "\n".join([f"{start}{MARKS[0]}", *lines, MARKS[1]]) + rest.split(MARKS[1])[1]
