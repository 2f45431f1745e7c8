"""Generated text for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.columns import Column, table_of
from bricks.report.figures import (
    FigureRow,
    figure_columns,
    interval_text,
    provenance_text,
    rate_text,
    target_text,
)
from bricks.report.tables import number, percent, seconds, size
from bricks.studies.generation.result import (
    CheckedGeneration,
    GenerationLoad,
    GenerationMemory,
    GenerationResult,
)
from bricks.studies.generation.steps import DecoderStep


def generation_parts(result: GenerationResult) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    return [
        _asked(result),
        "",
        _figures(result),
        "",
        _steps(result),
        "",
        *_memory(result.memory),
        *([] if result.load is None else _load(result, result.load)),
        *_notes(result),
    ]


def _asked(result: GenerationResult) -> str:
    asked = result.generation
    texts = f"{asked.batch} texts" if asked.batch > 1 else "a text"
    at_once = f"up to {texts} at once" if asked.qps else f"{texts} at once"
    return (
        f"{printable(result.model)}, {at_once if asked.batch > 1 else texts} of"
        f" {asked.prompt_tokens} prompt and {asked.new_tokens} new tokens, on"
        f" {target_text(result.target)}"
    )


_OBSERVED: Sequence[Column[FigureRow]] = (
    Column("generated", lambda row: row.unit(row.observed) if row.observed else None),
    Column("ratio", lambda row: row.ratio),
)


def _figures(result: GenerationResult) -> Table:
    ttft_s = tpot_s = tokens_per_s = None
    if result.checked is not None:
        ttft_s, tpot_s = result.checked.ttft_s, result.checked.tpot_s
        tokens_per_s = result.checked.tokens_per_s
    rows = [FigureRow("time to the first token", result.ttft_s, seconds, ttft_s)]
    if result.tpot_s is not None:
        rows.append(FigureRow("time per further token", result.tpot_s, seconds, tpot_s))
    rows.append(FigureRow("whole texts", result.total_s, seconds))
    rows.append(FigureRow("new tokens", result.tokens_per_s, rate_text, tokens_per_s))
    return table_of(rows, [*figure_columns(), *_OBSERVED])


@dataclass(frozen=True, slots=True)
class _ShownStep:
    """A step with its name, and the seconds of the generated step."""

    name: str
    step: DecoderStep
    real_s: float | None = None


_STEPS: Sequence[Column[_ShownStep]] = (
    Column("step", lambda row: row.name, left=True),
    Column("texts", lambda row: str(row.step.batch)),
    Column("new tokens", lambda row: str(row.step.tokens)),
    Column("in the cache", lambda row: str(row.step.past)),
    Column("latency", lambda row: seconds(row.step.run.latency_s.value)),
    Column("interval", lambda row: interval_text(row.step.run.latency_s, seconds)),
    Column("measured", lambda row: provenance_text(row.step.run.provenance)),
)
_REAL_STEPS: Sequence[Column[_ShownStep]] = (
    Column("generated", lambda row: seconds(row.real_s)),
    Column(
        "ratio",
        lambda row: number(row.step.run.latency_s.value / row.real_s, 3) if row.real_s else "–",
    ),
)


def _steps(result: GenerationResult) -> Table:
    checked: CheckedGeneration | None = result.checked
    real = {} if checked is None else checked.steps_s
    rows = [_ShownStep("prompt", result.prompt)]
    rows += [_ShownStep("token", step, real.get(step.past)) for step in result.shown]
    return table_of(rows, [*_STEPS, *(() if checked is None else _REAL_STEPS)])


def _memory(memory: GenerationMemory) -> Iterator[str]:
    cache = f"the cache {size(memory.cache_bytes)} at the last token"
    if memory.cache_bytes is None:
        cache = "the cache is not known"
    if memory.peak_bytes is None:
        yield f"Memory: {cache}; the rest is not known: {'; '.join(memory.unknown)}."
        return
    least = "at least " if memory.unknown else ""
    yield (
        f"Memory: weights {size(memory.weight_bytes)}, {cache}, and twice that while a"
        f" step copies it; at its peak {least}{size(memory.peak_bytes)}."
    )


def _load(result: GenerationResult, load: GenerationLoad) -> Iterator[RenderableType]:
    yield ""
    asked = f"{result.generation.qps:.4g} requests/s"
    if load.saturated:
        yield (
            f"{asked} are above saturation: continuous batching can serve"
            f" {load.capacity_qps.value:.4g} a second, and the queue grows without end."
        )
        return
    rows = [
        FigureRow(f"{title}, {name[1:3]}th percentile", figure, seconds)
        for title, figures in (("first token", load.ttft), ("further tokens", load.tpot))
        for name, figure in figures.items()
    ]
    rows.append(FigureRow("utilisation", load.utilisation, percent))
    yield table_of(rows, figure_columns(f"at {asked}"))
    yield ""
    yield (
        f"Continuous batching: {number(load.mean_batch, 1)} texts a step;"
        f" {load.tokens_per_s.value:.4g} new tokens/s; saturates at"
        f" {load.capacity_qps.value:.4g} requests/s."
    )


def _notes(result: GenerationResult) -> Iterator[str]:
    if result.generation.step_s:
        yield f"Between two steps the server takes {seconds(result.generation.step_s)}."
    if result.checked is not None:
        yield f"Generated: {result.checked.texts} times, greedily, with random weights."
    for line in result.warnings:
        yield f"Mind: {line}."
