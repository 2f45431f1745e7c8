"""A scenario for terminals, from what ``--json`` prints too.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import measured_text, number, percent, seconds

Row = Mapping[str, Any]


def scenario_parts(facts: Row) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    runtime = facts["runtime"]
    parts: list[RenderableType] = [
        f"{printable(facts['model'])}, {_load(facts)}, on {printable(facts['system']['name'])},"
        f" {runtime['backend']} {runtime['version']}",
        f"{_server(facts)}.",
        "",
        _figures(facts),
    ]
    if facts["max_batch"] > 1:
        parts += ["", _batches(facts)]
    parts += ["", *_answer(facts)]
    parts += [f"Mind: {line}." for line in facts["warnings"]]
    return parts


def _load(facts: Row) -> str:
    if facts["scenario"] == "multi-stream":
        return f"multi-stream, {facts['samples_per_query']} samples a query"
    if facts["arrivals"] is not None:
        return f"server, a trace of {facts['arrivals']} arrivals"
    if facts["qps"] is not None:
        return f"server at {facts['qps']:.4g} queries/s"
    return str(facts["scenario"])


def _server(facts: Row) -> str:
    instances, threads = facts["instances"], facts["runtime"]["threads"]
    told = [
        f"{_count(instances, 'instance')} with {_count(threads, 'thread')}"
        f"{'' if instances == 1 else ' each'}"
    ]
    if facts["max_batch"] > 1:
        waits = facts["batch_timeout_s"]
        told.append(
            f"batches of up to {facts['max_batch']}"
            + (f", filled for {seconds(waits)} at most" if waits else "")
        )
    if facts["max_queue"] is not None:
        told.append(f"a queue of {facts['max_queue']}")
    costs = [
        f"{seconds(facts[key])} a {what}"
        for key, what in (("request_cost_s", "sample"), ("batch_cost_s", "batch"))
        if facts[key]
    ]
    if costs:
        told.append(f"the server itself takes {' and '.join(costs)}")
    return "; ".join(told)


def _count(number_of: int, what: str) -> str:
    return f"{number_of} {what}{'' if number_of == 1 else 's'}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}/s"


# The name of each figure for people, and how it is written.
_SHOWN: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "p50_s": ("50th percentile", seconds),
    "p90_s": ("90th percentile", seconds),
    "p99_s": ("99th percentile", seconds),
    "p999_s": ("99.9th percentile", seconds),
    "trimmed_mean_s": ("trimmed mean", seconds),
    "throughput": ("throughput", _rate),
    "utilisation": ("utilisation", percent),
    "dropped_share": ("dropped", percent),
    "max_qps": ("highest rate", _rate),
}


def _figures(facts: Row) -> Table:
    """One row for each figure that there is; ``served`` is that of real queries."""
    checked = facts["checked"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("predicted", "interval", *(("so asked", "served", "ratio") if checked else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for key, (title, written) in _SHOWN.items():
        value = facts[key]
        if value is None or (key == "dropped_share" and facts["max_queue"] is None):
            continue
        if not facts["mean_batch"] and key in ("throughput", "utilisation"):
            continue  # no rate was found at which anything is served
        high = facts[f"{key}_high"]
        cells = [
            written(value),
            f"{written(facts[f'{key}_low'])} … {'no end' if high is None else written(high)}",
        ]
        if checked:
            real, told = checked.get(key), checked["expected"].get(key)
            cells += [written(told), written(real), number(told / real, 3) if real else "–"]
        table.add_row(title, *cells)
    return table


def _batches(facts: Row) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("batch", "latency", "interval", "samples/s", "measured"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in facts["batches"]:
        table.add_row(
            str(row["batch"]),
            seconds(row["latency_s"]),
            f"{seconds(row['latency_s_low'])} … {seconds(row['latency_s_high'])}",
            f"{row['throughput']:.4g}",
            measured_text(row["measured_share"], row["published_share"]),
        )
    return table


def _answer(facts: Row) -> Iterator[str]:
    if facts["max_batch"] > 1:
        grows = facts["best_batch"]
        yield (
            f"Throughput of an instance grows up to batches of {grows}."
            if grows > 1
            else "Batches do not raise the throughput of an instance."
        )
    if facts["scenario"] == "server":
        yield f"The server saturates at {_rate(facts['capacity_qps'])}."
    if facts["slo_s"] is not None:
        kept = {True: "is kept", False: "is missed", None: "may be kept or missed"}
        bound = f"{facts['percentile']:g} % within {seconds(facts['slo_s'])}"
        if facts["max_qps"] is not None and facts["max_qps"] <= 0:
            yield f"The bound of {bound} is kept at no rate."
        elif facts["max_qps"] is not None and facts["qps"] == facts["max_qps"]:
            yield f"The bound of {bound} is kept up to {_rate(facts['max_qps'])}."
        else:
            yield f"The bound of {bound} {kept[facts['keeps_slo']]}."
    checked = facts["checked"]
    if checked:
        told = checked["expected"]
        ends = (
            (f"{title} {seconds(checked[key])} ({seconds(told[key])} predicted)")
            for title, key in (
                ("in the median", "worker_p50_s"),
                (f"at the {facts['percentile']:g}th percentile", "worker_counted_s"),
            )
        )
        yield f"In the worker, without the queue, a batch takes {', '.join(ends)}."
        yield (
            f"Served: {_count(checked['samples'], 'real sample')} that MLPerf LoadGen asked for,"
            f" {number(checked['mean_batch'], 1)} samples a batch. So asked: what is predicted for"
            " the very times at which these came."
        )


def serving_advice_parts(facts: Row) -> list[RenderableType]:
    """What serves models at a rate, one row for each target."""
    bound = f"{facts['percentile']:g} % within {seconds(facts['slo_s'])}"
    texts, priced = ("model", "system"), any(row["cost_per_hour"] for row in facts["answers"])
    titles = (
        *texts, "threads", "instances", "batch", "hosts", f"p{facts['percentile']:g}", "host can",
        "busy", "measured", *(("cost/hour", "cost/million") if priced else ()),
    )  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, justify="left" if title in texts else "right", no_wrap=True)
    for row in facts["answers"]:
        if row["error"] is not None:
            continue
        costs = (number(row["cost_per_hour"], 3), number(row["cost_per_million"], 3))
        table.add_row(
            printable(row["model"]),
            printable(row["system"]),
            str(row["threads"]),
            *(str(row[key] or "–") for key in ("instances", "max_batch", "hosts")),
            seconds(row["counted_s"]) if row["keeps"] else "not kept",
            _rate(row["max_qps"]),
            percent(row["utilisation"], 0),
            measured_text(row["measured_share"], row["published_share"]),
            *(costs if priced else ()),
        )
    return [
        f"{facts['qps']:.4g} samples/s, {bound}.",
        "",
        table,
        "",
        "Hosts are as many as keep the bound with all latencies at the high end of their intervals."
        " Processors are taken to be awake, and instances not to slow each other down.",
    ]
