"""A training on several ranks for terminals, from what ``--json`` prints too.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import number, percent, seconds, size

Row = Mapping[str, Any]


def scaling_parts(facts: Row) -> list[RenderableType]:
    """Lines and a table in the order to show them."""
    runtime, rows = facts["runtime"], [row for row in facts["ranks"] if row["error"] is None]
    threads = runtime["threads"]
    parts: list[RenderableType] = [
        f"{printable(facts['workload'])} on ranks of {printable(facts['system']['name'])},"
        f" {runtime['backend']} {runtime['version']}, {threads}"
        f" {'thread' if threads == 1 else 'threads'}; network: {printable(facts['network'])}"
    ]
    parts += _conditions(facts, rows)
    if rows:
        parts += ["", _table(rows), ""]
        parts += _origins(rows)
        parts += _pays(facts, rows)
        parts += _shared_host(facts, rows)
    for what, name in (("curves and the timeline of a step", "page"), ("the step", "trace")):
        if facts[name] is not None:
            viewer = "any browser" if name == "page" else "ui.perfetto.dev"
            parts.append(f"{facts[name]}: {what}; open it in {viewer}.")
    return parts


def _conditions(facts: Row, rows: Sequence[Row]) -> Iterator[str]:
    """What differs from a plain step."""
    told = []
    if rows:
        shared = facts["scaling"] == "strong"
        whole = max(row["batch"] for row in rows)
        told.append(f"a batch of {whole} {'divided by all ranks' if shared else 'on each rank'}")
    if facts["accumulate"] > 1:
        told.append(f"{facts['accumulate']} batches a step")
    if facts["straggler"] > 1:
        told.append(f"one rank {facts['straggler']:g} times slower")
    if told:
        yield f"{'; '.join(told).capitalize()}."


def _table(rows: Sequence[Row]) -> Table:
    """One row for each number of ranks; columns that say nothing are left out."""
    several = len({row["strategy"] for row in rows}) > 1
    costs = any(row["cost_per_epoch"] is not None for row in rows)
    checked = any(row["measured_step_s"] is not None for row in rows)
    names = [
        *(["strategy"] if several else []),
        "ranks", "step", "interval", "samples/s", "speed-up", "efficiency", "exposed", "sent",
        *(["cost/epoch"] if costs else []),
        *(["measured", "ratio"] if checked else []),
    ]  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name == "strategy" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            *([row["strategy"]] if several else []),
            str(row["ranks"]),
            seconds(row["step_s"]),
            f"{seconds(row['low_s'])} … {seconds(row['high_s'])}",
            f"{row['samples_per_s']:.4g}",
            number(row["speedup"]),
            percent(row["efficiency"], 0),
            seconds(row["exposed_communication_s"]) if row["ranks"] > 1 else "–",
            size(row["bytes_sent"]) if row["ranks"] > 1 else "–",
            *([number(row["cost_per_epoch"], 4)] if costs else []),
            *([seconds(row["measured_step_s"]), number(row["ratio"], 3)] if checked else []),
        )
    return table


def _origins(rows: Sequence[Row]) -> Iterator[str]:
    """Where the figures come from: once for all rows that agree."""
    by_origin: dict[str, list[int]] = {}
    for row in rows:
        origin = row["origin"]
        parts = [f"computing {origin['compute']}"]
        if origin["network"] is not None:
            parts += [
                f"copies {origin['copies']}", f"network {origin['network']}",
                f"what it costs the cores {origin['slowdown']}",
            ]  # fmt: skip
        by_origin.setdefault(", ".join(parts), []).append(row["ranks"])
    for told, ranks in by_origin.items():
        numbers = ", ".join(map(str, dict.fromkeys(ranks)))
        yield f"{numbers} {'rank' if numbers == '1' else 'ranks'}: {told}."


def _shared_host(facts: Row, rows: Sequence[Row]) -> Iterator[str]:
    """What ranks that ran on one host cost each other, which a prediction does not count."""
    alone = {row["strategy"]: row["step_s"] for row in rows if row["ranks"] == 1}
    for row in rows:
        if row["measured_solo_s"] is None or facts["scaling"] == "strong":
            continue
        told = (
            ""
            if row["strategy"] not in alone
            else f" ({seconds(alone[row['strategy']])} predicted)"
        )
        yield (
            f"Without communication, a step of {row['ranks']} ranks at once took"
            f" {seconds(row['measured_solo_s'])}{told}: ranks that share a host slow each other,"
            " which those on hosts of their own do not."
        )


def _pays(facts: Row, rows: Sequence[Row]) -> Iterator[str]:
    several = len({row["strategy"] for row in rows}) > 1
    for each in facts["pays"]:
        name = f"{each['strategy']}: " if several else ""
        if each["up_to"] is None:
            line = f"further ranks pay up to {each['looked_up_to']} at least"
            line += " (each adds half of a lone rank's samples/s or more)"
        else:
            count = f"{each['up_to']} {'rank' if each['up_to'] == 1 else 'ranks'}"
            line = f"from {count} on, further ones no longer pay"
            line += " (each adds less than half of a lone rank's samples/s)"
        yield f"{name}{line}." if name else f"{line[0].upper()}{line[1:]}."
