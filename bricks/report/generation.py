"""Generated text for terminals, from what ``--json`` prints too.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import measured_text, number, percent, seconds, size

Row = Mapping[str, Any]


def generation_parts(facts: Row) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    runtime, threads = facts["runtime"], facts["runtime"]["threads"]
    texts = f"{facts['batch']} texts" if facts["batch"] > 1 else "a text"
    at_once = f"up to {texts} at once" if facts["qps"] else f"{texts} at once"
    return [
        f"{printable(facts['model'])}, {at_once if facts['batch'] > 1 else texts} of"
        f" {facts['prompt_tokens']} prompt and {facts['new_tokens']} new tokens, on"
        f" {printable(facts['system']['name'])}, {runtime['backend']} {runtime['version']},"
        f" {threads} thread{'' if threads == 1 else 's'}",
        "",
        _figures(facts),
        "",
        _steps(facts),
        "",
        *_memory(facts["memory"]),
        *([] if facts["load"] is None else _load(facts)),
        *_said(facts),
    ]


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}/s"


_SHOWN: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "ttft_s": ("time to the first token", seconds),
    "tpot_s": ("time per further token", seconds),
    "total_s": ("whole texts", seconds),
    "tokens_per_s": ("new tokens", _rate),
}


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _figures(facts: Row) -> Table:
    checked = facts["checked"]
    table = _table("", "predicted", "interval", *(("generated", "ratio") if checked else ()))
    for key, (title, written) in _SHOWN.items():
        if facts[key] is None:
            continue
        cells = [written(facts[key]), _interval(facts, key, written)]
        if checked:
            real = checked.get(key)
            cells += [written(real), number(facts[key] / real, 3)] if real else ["–", "–"]
        table.add_row(title, *cells)
    return table


def _interval(facts: Row, key: str, written: Callable[[float | None], str]) -> str:
    high = facts[f"{key}_high"]
    return f"{written(facts[f'{key}_low'])} … {'no end' if high is None else written(high)}"


def _steps(facts: Row) -> Table:
    checked = facts["checked"]
    real = {int(past): taken for past, taken in checked["steps_s"].items()} if checked else {}
    table = _table(
        "step", "texts", "new tokens", "in the cache", "latency", "interval", "measured",
        *(("generated", "ratio") if checked else ()),
    )  # fmt: skip
    for name, step in [("prompt", facts["prompt"]), *(("token", s) for s in facts["steps"])]:
        cells = [
            str(step["batch"]), str(step["tokens"]), str(step["past_tokens"]),
            seconds(step["latency_s"]), _interval(step, "latency_s", seconds),
            measured_text(step["measured_share"], step["published_share"]),
        ]  # fmt: skip
        if checked:
            taken = real.get(step["past_tokens"]) if name == "token" else None
            ratio = number(step["latency_s"] / taken, 3) if taken else "–"
            cells += [seconds(taken), ratio]
        table.add_row(name, *cells)
    return table


def _memory(memory: Row) -> Iterator[str]:
    cache = f"the cache {size(memory['cache_bytes'])} at the last token"
    if memory["cache_bytes"] is None:
        cache = "the cache is not known"
    if memory["peak_bytes"] is None:
        yield f"Memory: {cache}; the rest is not known: {'; '.join(memory['unknown'])}."
        return
    least = "at least " if memory["unknown"] else ""
    yield (
        f"Memory: weights {size(memory['weight_bytes'])}, {cache}, and twice that while a"
        f" step copies it; at its peak {least}{size(memory['peak_bytes'])}."
    )


def _load(facts: Row) -> Iterator[RenderableType]:
    load = facts["load"]
    yield ""
    if load["saturated"]:
        yield (
            f"{facts['qps']:.4g} requests/s are above saturation: continuous batching can serve"
            f" {load['capacity_qps']:.4g} a second, and the queue grows without end."
        )
        return
    table = _table(f"at {facts['qps']:.4g} requests/s", "predicted", "interval")
    for name, title in (("ttft", "first token"), ("tpot", "further tokens")):
        for percentile in ("p50_s", "p90_s", "p99_s"):
            key = f"{name}_{percentile}"
            if load[key] is not None:
                place = f"{title}, {percentile[1:3]}th percentile"
                table.add_row(place, seconds(load[key]), _interval(load, key, seconds))
    table.add_row(
        "utilisation", percent(load["utilisation"]), _interval(load, "utilisation", percent)
    )
    yield table
    yield ""
    yield (
        f"Continuous batching: {number(load['mean_batch'], 1)} texts a step;"
        f" {load['tokens_per_s']:.4g} new tokens/s; saturates at"
        f" {load['capacity_qps']:.4g} requests/s."
    )


def _said(facts: Row) -> Iterator[str]:
    if facts["step_cost_s"]:
        yield f"Between two steps the server takes {seconds(facts['step_cost_s'])}."
    if facts["checked"]:
        yield f"Generated: {facts['checked']['texts']} times, greedily, with random weights."
    for line in facts["warnings"]:
        yield f"Mind: {line}."
