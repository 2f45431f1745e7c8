"""Writes the page: fills facts, tables and figures into the template ``paper.in.md``.

The template holds the prose, and ``{names}`` in place of numbers and tables; no result is typed by
hand. Facts are listed in ``facts.py``; tables and lists are ``notice``, ``glance``,
``tasks_table``, ``granularity_tables``, ``worst_table`` and ``failures``, figures ``figure_`` and
their name. The page summarises; tables with a row for each model are :func:`tables`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.evaluation import published
from benchmarks.evaluation.facts import NOT_MEASURED, facts_of, number, percent, span
from benchmarks.evaluation.figures import title_of
from benchmarks.evaluation.results import EXECUTED, Failed, Results, Row

TEMPLATE = Path(__file__).with_name("paper.in.md")

ALTERNATIVES = {
    "unique": "Bars: the share of each model's layers that are unique",
    "types": "Stacked bars: operators of the repeated layers of each model",
    "jaccard": "Grid: Jaccard similarity of the layers of every two models",
    "models": "Grid: deviation of the estimate from the measured latency by model and granularity",
    "geomean": "Lines: geometric mean of normalised latency by granularity, beside the paper's",
    "errors": "Lines: mean absolute error by granularity, beside the paper's",
    "speedup": "Lines: speed-up of benchmarking by granularity, beside the paper's",
}


def write(results: Results, drawn: Mapping[str, Path], page: Path) -> None:
    """Write the page; ``drawn`` are the files of figures by name."""
    facts = facts_of(results)
    facts |= {
        "notice": notice(results),
        "glance": glance(results),
        "tasks_table": tasks_table(results),
        "granularity_tables": granularity_tables(results),
        "worst_table": worst_table(results),
        "failures": failures(results),
    }
    for name, alternative in ALTERNATIVES.items():
        shown = drawn.get(name)
        facts[f"figure_{name}"] = (
            f"![{alternative}]({shown.relative_to(page.parent).as_posix()})"
            if shown
            else "*No figure: not measured.*"
        )
    text = TEMPLATE.read_text(encoding="utf-8").format_map(facts)
    page.write_text(re.sub(r"\n{3,}", "\n\n", text), encoding="utf-8")


def notice(results: Results) -> str:
    """Warnings about the run as a whole; empty for a complete and regular run."""
    lines = []
    if results.quick:
        lines.append(
            "These are results of a quick run, which only shows that everything works: do not"
            " compare them with anything."
        )
    if "fake" in results.runtimes:
        lines.append("The fake runtime computes nothing: its latencies are synthetic.")
    if results.protocol["threads"] != 1:
        lines.append(
            f"These were measured with {results.protocol['threads']} threads: the remarks on one"
            " thread below do not apply."
        )
    missing = len(results.models) - len(results.reached)
    if missing:
        lines.append(
            f"The run was interrupted: {missing} of {len(results.models)} models were not reached."
        )
    if failed := results.failures():
        lines.append(
            f"{len(failed)} of {len(results.rows)} comparisons could not be made:"
            " [they are named below](#what-could-not-be-compared)."
        )
    return "".join(f"> **Note.** {line}\n\n" for line in lines)


def glance(results: Results) -> str:
    """The paper's figures next to the results of this run."""
    facts, stated = facts_of(results), published.STATED_SYSTEM
    means, errors = published.GEOMEANS[stated], published.MEAN_ERRORS
    nearest = min(range(10), key=lambda i: abs(means[i] - 1))

    def each(text: str) -> list[str]:
        """``text`` for each runtime, ``@`` standing for its name; a dash where not measured."""
        cells = [text.replace("@", name).format_map(facts) for name in results.runtimes]
        return ["–" if NOT_MEASURED in cell else cell for cell in cells]

    def once(text: str) -> list[str]:
        return [text.format_map(facts), *[""] * (len(results.runtimes) - 1)]

    rows = [
        ("models", "{paper_models}", once(f"{len(results.reached)}")),
        ("layers", "{paper_layers}", once("{layers}")),
        ("unique layers", "{paper_unique_layers}", once("{unique_layers}")),
        ("unique share", "{paper_unique_share}", once("{unique_share}")),
        ("unique share, trained models of the paper's list", "{paper_unique_share}",
         once("{trained_unique_share}")),
        ("geometric mean of estimate / measured, G = 1",
         "{paper_geomean_1} ({paper_system}); {paper_span_1} over systems",
         each("{@_geomean_1}")),
        ("range over the models, G = 1", "{paper_low_1} … {paper_high_1} ({paper_system})",
         each("{@_low_1} … {@_high_1}")),
        ("geometric mean at the best G", f"{means[nearest]:.3f} (G = {nearest + 1}, {stated})",
         each("{@_best_geomean} (G = {@_best})")),
        ("mean absolute error there",
         f"{percent(errors[published.BEST_GRANULARITY - 1])} (its least, G ="
         f" {published.BEST_GRANULARITY}, {stated})", each("{@_best_error}")),
        ("geometric mean, `executed`", "–", each("{@_geomean_executed}")),
        ("mean absolute error, `executed`", "–", each("{@_error_executed}")),
        ("speed-up, G = 1, trained models of the paper's list",
         "{paper_speedup_1} ({paper_speedup_system})", each("{@_trained_speedup_1}")),
        ("speed-up, G = 1, every network here once", "–", each("{@_speedup_1}")),
    ]  # fmt: skip
    head = ["", "the paper", *map(title_of, results.runtimes)]
    return _table(head, [[name, paper.format_map(facts), *cells] for name, paper, cells in rows])


def tables(results: Results) -> str:
    """Every table with a row for each model, which the page leaves out."""
    parts = {
        "The models": models_table(results),
        "The paper's list": trained_table(results),
        "Estimate over measured latency": ratio_tables(results),
    }
    return "\n\n".join(f"## {title}\n\n{table}" for title, table in parts.items())


def tasks_table(results: Results) -> str:
    """The models of each task together: how many there are, their layers, and their errors."""
    cuts = {runtime: _shown(results, runtime) for runtime in results.runtimes}
    lines = []
    for task in results.tasks:
        names = [model.name for model in results.of_task(task)]
        sizes = sorted(m.parameters for m in results.of_task(task) if m.parameters is not None)
        known = [results.layers.models[name] for name in names if name in results.layers.models]
        layers, unique = sum(map(len, known)), len({layer for of in known for layer in of})
        lines.append([
            task, f"{len(names)}",
            f"{sizes[0] / 1e6:.1f} … {sizes[-1] / 1e6:.1f} M" if sizes else "–",
            f"{layers:,}", f"{unique:,}", percent(unique / layers) if layers else NOT_MEASURED,
            *(_task_error(results, names, runtime, cut) for runtime, cut in cuts.items()),
        ])  # fmt: skip
    head = ["task", "models", "parameters", "layers", "unique", "share"]
    errors = [f"{title_of(runtime)}, {_named(cut)}" for runtime, cut in cuts.items()]
    return _table([*head, *errors], lines)


def _task_error(results: Results, names: Sequence[str], runtime: str, cut: str) -> str:
    """The mean absolute error of some models."""
    ratios = results.ratios(runtime, cut)
    errors = [abs(ratios[name] - 1) for name in names if name in ratios]
    return percent(sum(errors) / len(errors)) if errors else "–"


def _shown(results: Results, runtime: str) -> str:
    """The granularity whose errors are shown by task and by model: ``executed`` where it ran."""
    cuts = results.cuts_of(runtime)
    return EXECUTED if EXECUTED in cuts or not cuts else cuts[0]


def _named(cut: str) -> str:
    return f"`{cut}`" if cut == EXECUTED else f"G = {cut}"


def worst_table(results: Results, *, most: int = 10) -> str:
    """The models with the largest errors on each runtime."""
    cuts = {runtime: _shown(results, runtime) for runtime in results.runtimes}
    columns = []
    for runtime, cut in cuts.items():
        ratios = results.ratios(runtime, cut)
        worst = sorted(ratios, key=lambda name: (-abs(ratios[name] - 1), name))[:most]
        columns.append([[name, number(ratios[name])] for name in worst])
    rows = max(map(len, columns), default=0)
    lines = [
        [cell for of in columns for cell in (of[i] if i < len(of) else ("", ""))]
        for i in range(rows)
    ]
    head = [
        cell
        for runtime, cut in cuts.items()
        for cell in (f"{title_of(runtime)}, {_named(cut)}", "ratio")
    ]
    return _table(head, lines) if lines else NOT_MEASURED


def models_table(results: Results) -> str:
    """The models by task."""
    layers = results.layers
    lines = []
    for task in results.tasks:
        for model in results.of_task(task):
            known = layers.models.get(model.name)
            lines.append([
                task, model.name, model.inputs or "–",
                "–" if model.parameters is None else f"{model.parameters / 1e6:.1f} M",
                f"{len(known)}" if known else NOT_MEASURED,
                f"{len(set(known))}" if known else NOT_MEASURED,
                percent(layers.unique_share(model.name)) if known else NOT_MEASURED,
            ])  # fmt: skip
    head = ["task", "model", "input", "parameters", "layers", "unique", "share"]
    return _table(head, lines, left=3)


def trained_table(results: Results) -> str:
    """The trained models of the paper's authors that each network stands for."""
    lines = [
        [name, f"{len(of)}", "; ".join(of), "yes" if name in published.RELATIVES else ""]
        for name, of in published.TRAINED.items()
        if name in results.layers.models
    ]
    head = ["network", "trained models", "which", "a relative only"]
    return _table(head, lines, left=4) if lines else NOT_MEASURED


def granularity_tables(results: Results) -> str:
    """The paper's figures by granularity, and for each runtime errors and cost of estimates."""
    every = all(len(results.ratios(r, cut)) == len(results.models)
                for r in results.runtimes for cut in results.cuts_of(r))  # fmt: skip
    head = ["G", *([] if every else ["models"]), "geometric mean", "range", "mean absolute error",
            "within 5 %", "unique bricks", "speed-up, every network",
            "speed-up, the paper's list"]  # fmt: skip
    facts, parts = facts_of(results), ["**The paper**", "", _published_table(results), ""]
    for runtime in results.runtimes:
        lines = []
        for cut in results.cuts_of(runtime):

            def fact(name: str, of: str = f"{runtime}_@_{cut}") -> str:
                return facts[of.replace("@", name)]

            lines.append([
                f"`{cut}`" if cut == EXECUTED else cut,
                *([] if every else [fact("count")]), fact("geomean"),
                f"{fact('low')} … {fact('high')}", fact("error"), fact("within5"), fact("bricks"),
                fact("speedup"), fact("trained_speedup"),
            ])  # fmt: skip
        parts += [f"**{title_of(runtime)}**", "", _table(head, lines), ""]
    return "\n".join(parts).rstrip()


def _published_table(results: Results) -> str:
    """The paper's figures for the granularities of this run; a column for each."""
    cuts = results.numbers
    rows = [
        ("geometric mean, four systems", [span(g) for g in cuts]),
        (f"mean absolute error, {published.STATED_SYSTEM}",
         [_nth(published.MEAN_ERRORS, g, percent) for g in cuts]),
        (f"speed-up, {published.SPEEDUP_SYSTEM}",
         [_nth(published.SPEEDUPS, g, "{:.2f}".format) for g in cuts]),
    ]  # fmt: skip
    return _table(["G", *map(str, cuts)], [[name, *cells] for name, cells in rows])


def ratio_tables(results: Results) -> str:
    """A table for each runtime: every model's normalised latency at every granularity."""
    parts = []
    for runtime in results.runtimes:
        lines = []
        cuts = results.cuts_of(runtime)
        for task in results.tasks:
            for model in results.of_task(task):
                rows = [results.rows.get((model.name, runtime, cut)) for cut in cuts]
                measured = next((r.measured_s[0] for r in rows if isinstance(r, Row)), None)
                latency = "–" if measured is None else milliseconds(measured)
                lines.append([model.name, latency, *map(_ratio, rows)])
        head = ["model", "measured", *cuts]
        parts += [f"### {title_of(runtime)}", "", _table(head, lines), ""]
    return "\n".join(parts).rstrip()


def failures(results: Results) -> str:
    """Every comparison that could not be made, with its reason; equal reasons together."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for name, runtime, granularity, error in results.failures():
        grouped.setdefault((name, runtime, error), []).append(granularity)
    if not grouped:
        return "Nothing: every model was compared at every granularity."
    return "\n".join(
        f"- {name}, {title_of(runtime)}, G = {', '.join(cuts)}: {error.removeprefix(f'{name}: ')}"
        for (name, runtime, error), cuts in grouped.items()
    )


def milliseconds(latency_s: float) -> str:
    """Three digits, or all before the point."""
    latency = 1e3 * latency_s
    return f"{latency:,.0f} ms" if latency >= 100 else f"{latency:.3g} ms"


def _ratio(row: Row | Failed | None) -> str:
    if isinstance(row, Row):
        return number(row.ratio)
    return "failed" if isinstance(row, Failed) else "–"


def _nth(values: Sequence[float], number: int, text: Callable[[float], str]) -> str:
    """The paper's value at this number of layers, if it reports one."""
    return text(values[number - 1]) if 1 <= number <= len(values) else "–"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table whose first columns are to the left."""
    rule = ["---"] * left + ["--:"] * (len(head) - left)
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
