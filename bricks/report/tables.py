"""Tables for terminals, from the same data that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bricks.errors import printable
from bricks.samples.sampling import Sampling

Row = Mapping[str, Any]

# Smaller parts of an estimate than this are not mentioned.
NOTABLE_SHARE = 0.05

# Load of other processes below this is normal for an operating system.
NOTABLE_CORES = 0.1


def seconds(value: float | None) -> str:
    """A duration with a unit that suits it: ``1.23 ms``."""
    if value is None:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{_three_digits(value * factor)} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(value: float | None) -> str:
    """A number of bytes with a unit that suits it: ``97.5 MiB``."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits."""
    return "–" if value is None else f"{value:.{digits}f}"


def disturbance(of: Sampling) -> list[str]:
    """Lines for people if the host was not quiet while something was measured; else none."""
    lines = []
    if of.disturbed_rounds:
        lines.append(
            f"{of.disturbed_rounds} of {of.rounds} rounds were disturbed, by other processes or"
            " since the machine changed: they are kept, and left out wherever there are enough"
            " others."
        )
    if of.remeasured_bricks:
        lines.append(
            f"{of.remeasured_bricks} bricks that had been measured were measured again: the machine"
            " had come into another state, in which latencies are others."
        )
    if of.eviction_short:
        lines.append(
            "There was too little memory to make weights as cold as they are in large models: their"
            " bricks may be too fast. Free some, or raise the limit."
        )
    if of.apart:
        lines.append(
            f"{len(of.apart)} bricks ran in calls of their own, because the runtime could not run"
            " them in one call with their neighbours: small ones may be too slow."
        )
    if of.foreign_cores is not None and of.foreign_cores >= NOTABLE_CORES:
        lines.append(
            f"Other processes kept {of.foreign_cores:.1f} cores busy meanwhile: latencies are"
            " higher than on a quiet host, and uneven. Take further rounds when it is: --again."
        )
    return lines


def fleet_tables(targets: Sequence[Row], hosts: Sequence[Row]) -> list[Table]:
    """The measurements of each target, and the contribution of each host."""
    names = {target["system"]["key"]: target["system"]["name"] for target in targets}
    done = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("system", "threads", "bricks", "new", "predicted", "failed", "unfinished"):
        done.add_column(title, justify="left" if title == "system" else "right")
    for target in targets:
        counts = (target[name] for name in ("bricks", "new_bricks", "predicted_bricks"))
        done.add_row(
            Text(printable(target["system"]["name"])),
            str(target["runtime"]["threads"]),
            *map(str, counts),
            str(len(target["failures"])),
            str(target["unfinished"]),
        )
    by = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("host", "system", "new", "rounds", "disturbed", "others' cores", ""):
        by.add_column(title, justify="left" if title in ("host", "system", "") else "right")
    for host in hosts:
        load = host["foreign_cores"]
        remarks = [*host["changed"], *([host["left"]] if host["left"] else [])]
        if load is not None and load >= NOTABLE_CORES:
            remarks.append("others worked there: latencies are too high, and uneven")
        by.add_row(
            Text(printable(host["name"])),
            Text(printable(names.get(host["system"], "–"))),
            *(str(host[name]) for name in ("new_bricks", "rounds", "disturbed_rounds")),
            number(load, 1),
            Text(printable("; ".join(remarks))),
        )
    return [done, by]


def other_state(model: str, share: float | None) -> list[str]:
    """A line for people if a notable part of an estimate comes from another machine state."""
    if share is None or share < NOTABLE_SHARE:
        return []
    return [
        f"{model}: {percent(share, 0)} of the estimate comes from bricks that were measured in"
        " another state of the machine only: the interval allows for that."
    ]


def predicted(model: str, share: float | None) -> list[str]:
    """A line for people if a part of an estimate was not measured."""
    if not share:
        return []
    return [
        f"{model}: {percent(share)} of the estimate is predicted from bricks of other models: the"
        " interval allows for that."
    ]


def measured_text(own: float | None, others: float | None) -> str:
    """The shares of an estimate that are measured, and by whom: ``62 % own, 30 % others``.

    The rest is predicted.
    """
    if own is None:
        return "–"
    shares = {"own": round(own, 6), "others": round(others or 0.0, 6)}
    told = [f"{share_text(share)} {whose}" for whose, share in shares.items() if share]
    return ", ".join(told) or "0 %"


def share_text(share: float) -> str:
    """A share of an estimate; no part looks like none, and no incomplete one like all."""
    if share < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= share < 1 else percent(share, 0)


def giga(value: float | None) -> str:
    """A count of operations in billions."""
    return "unknown" if value is None else f"{value / 1e9:.2f}"


def decomposition_table(rows: Sequence[Row], union: Row) -> Table:
    """The decomposition of each model, and of all models together."""
    table = _table("model", "nodes", "bricks", "occurrences", "unique", "GFLOP", "weights")
    for row in rows:
        if row["nodes"] is not None:
            table.add_row(_text(row["model"]), *_decomposition_cells(row))
    table.add_section()
    table.add_row("all", *_decomposition_cells(union))
    return table


def _decomposition_cells(row: Row) -> tuple[str, ...]:
    return (
        str(row["nodes"]),
        str(row["bricks"]),
        str(row["occurrences"]),
        percent(row["unique_share"]),
        giga(row["flops"]),
        size(row["weight_bytes"]),
    )


def peak_size(peak_bytes: int | None, unknown: Sequence[str]) -> str:
    """A peak memory in bytes; as a lower bound where some of it is ``unknown``."""
    return f"{'≥ ' if unknown else ''}{size(peak_bytes)}"


def peak_parts(memory: Mapping[str, Any]) -> str:
    """The parts of a peak memory, in bytes by name: ``weights 1.0 MiB, activations …``."""
    parts = [
        f"weights {size(memory['weight_bytes'])}",
        f"activations {size(memory['activation_bytes'])}",
    ]
    if memory["temporary_bytes"]:  # of a recorded program
        parts += [f"{name} {size(memory[f'{key}_bytes'])}" for name, key in _OF_PROGRAMS.items()]
    else:
        names = ("workspace", "runtime", "loading")
        parts += [f"{name} {size(memory[f'{name}_bytes'])}" for name in names]
    return ", ".join(parts)


_OF_PROGRAMS = {
    "gradients": "gradient", "optimiser's state": "optimizer", "temporaries": "temporary",
}  # fmt: skip


def backends_table(rows: Sequence[Row]) -> Table:
    """Runtimes, a row each, with the remedy for missing ones."""
    table = Table(box=None, pad_edge=False)
    for title in ("runtime", "version", "execution provider", "state"):
        table.add_column(title)
    for row in rows:
        state = "installed" if row["installed"] else row["missing"]
        table.add_row(
            *(_text(_plain(v)) for v in (row["name"], row["version"], row["provider"])),
            _text(state),
        )
    return table


def similarity_table(models: Sequence[Row], grid: Sequence[Sequence[float]]) -> Table:
    """The similarity of every two of a few models; columns are numbered as rows are."""
    table = _table("model", "bricks", *(str(i + 1) for i in range(len(models))))
    for i, (row, line) in enumerate(zip(models, grid, strict=True)):
        cells = (_index(value) if i != j else "·" for j, value in enumerate(line))
        table.add_row(_text(f"{i + 1} {row['model']}"), str(row["bricks"]), *cells)
    return table


def nearest_table(models: Sequence[Row]) -> Table:
    """The models that are most similar to each, for more of them than a grid has room for."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold")
    for name in ("bricks", "shared"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("most similar", overflow="fold")
    for row in models:
        near = ", ".join(f"{n['model']} {_index(n['similarity'])}" for n in row["nearest"][:3])
        cells = str(row["bricks"]), percent(row["shared"] / row["bricks"], 0)
        table.add_row(_text(row["model"]), *cells, _text(near or "none"))
    return table


def _index(value: float) -> str:
    """A similarity with two digits; a nonzero one never looks like zero."""
    return "–" if value == 0 else "<0.01" if value < 0.005 else f"{value:.2f}"


def coverage_table(models: Sequence[Row], together: Row) -> Table:
    """How much of each model is measured, and the cost of measuring the rest."""
    table = _table("model", "bricks", "measured", "places", "FLOPs", "estimate", "cost", "added")
    for row in models:
        if row["error"] is None:
            table.add_row(_text(row["model"]), *_coverage_cells(row), _cost(row["marginal_s"]))
    table.add_section()
    table.add_row("all", *_coverage_cells(together), _cost(together["cost_s"]))
    return table


def _coverage_cells(row: Row) -> tuple[str, ...]:
    state = "possible" if row["complete"] else "fails" if row["failed"] else "incomplete"
    return (
        str(row["bricks"]),
        str(row["measured"]),
        percent(row["coverage"]),
        percent(row["flops_share"]),
        state,
        _cost(row["cost_s"]),
    )


def _cost(value: float | None) -> str:
    return "unknown" if value is None else seconds(value) if value else "none"


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Names and values, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _text(_plain(value)))
    return table


def differences_table(names: Sequence[str], facts: Mapping[str, tuple[Any, Any]]) -> Table:
    """Facts of two systems, among these ``names``, that differ."""
    table = _table("", *names)
    for fact, values in facts.items():
        table.add_row(_text(fact.replace("_", " ")), *(_text(_plain(value)) for value in values))
    return table


def _text(name: str) -> Text:
    """A name from outside: no markup, and no control characters for the terminal."""
    return Text(printable(name))


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
