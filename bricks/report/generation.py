"""Generated text for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.device.collectives import HOST_CALLS
from bricks.errors import printable
from bricks.report.answers.generation import token_rate_text
from bricks.report.answers.words import source_text, uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.figures import FigureRow, figure_columns, rate_text, target_text
from bricks.report.tables import assumed_launching, number, percent, seconds, size
from bricks.session.targets import short_names

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.studies.generation.result import (
        CheckedGeneration,
        GenerationLoad,
        GenerationResult,
        LlmResult,
    )
    from bricks.studies.generation.steps import DecoderStep


def llm_parts(result: LlmResult) -> list[RenderableType]:
    """A table with a row for each batch and system; with requests at a rate, one of these."""
    parts: list[RenderableType] = [table_of(result.known, _columns(result))]
    for row in result.known:
        if row.checked is not None:
            parts += ["", table_of(_figures(row), [*figure_columns(), *_OBSERVED])]
        if row.load is not None:
            parts += ["", *_load(row, row.load)]
    return parts


def llm_details(result: LlmResult) -> list[RenderableType]:
    """As :func:`llm_parts`, and the steps of each row."""
    steps = [part for row in result.known for part in ("", f"{_asked(row)}:", _steps(row))]
    return [*llm_parts(result), *steps]


def llm_remarks(result: LlmResult) -> list[str]:
    """What was assumed of memory and of texts, the weightiest first."""
    return list(dict.fromkeys(line for row in result.known for line in _notes(row)))


def _columns(result: LlmResult) -> list[Column[GenerationResult]]:
    names = short_names({row.target.system.name for row in result.known})
    several = len(names) > 1
    on: Column[GenerationResult] = Column(
        "on", lambda row: names[row.target.system.name], left=True
    )
    each: Column[GenerationResult] = Column("each", _each)
    gpu = any(row.limited_by for row in result.known)
    return [
        *([on] if several else []),
        Column("batch", lambda row: str(row.generation.batch)),
        Column("tokens/s", lambda row: token_rate_text(row.decode_tokens_per_s.value)),
        *([] if several or gpu else [each]),
        Column("±", lambda row: uncertainty_text(row.decode_tokens_per_s, token_rate_text)),
        *(_GPU if gpu else ()),
        Column("first", lambda row: seconds(row.ttft_s.value)),
        *([] if gpu else [_WEIGHTS]),
        Column("cache", lambda row: size(row.memory.cache_bytes)),
        Column("peak", _peak),
    ]


def _graph(row: GenerationResult) -> str | None:
    """Tokens a second where steps are launched as CUDA graphs."""
    graph = row.graph_tokens_per_s
    return None if graph is None else token_rate_text(graph.value)


_WEIGHTS: Column[GenerationResult] = Column("weights", lambda row: size(row.memory.weight_bytes))
_GPU: Sequence[Column[GenerationResult]] = (
    Column("limit", lambda row: row.limited_by, left=True),
    Column("CUDA graph", _graph),
)


def _each(row: GenerationResult) -> str | None:
    """Tokens a second of one text; None where it is the only one."""
    texts = row.generation.batch if row.generation.qps is None else 1
    return token_rate_text(row.decode_tokens_per_s.value / texts) if texts > 1 else None


def _peak(row: GenerationResult) -> str | None:
    memory = row.memory
    least = "≥ " if memory.unknown else ""
    return None if memory.peak_bytes is None else f"{least}{size(memory.peak_bytes)}"


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


def _figures(result: GenerationResult) -> list[FigureRow]:
    """Predicted quantities next to those of the texts that were generated."""
    checked = result.checked
    assert checked is not None
    rows = [FigureRow("time to the first token", result.ttft_s, seconds, checked.ttft_s)]
    if result.tpot_s is not None:
        rows.append(FigureRow("time per further token", result.tpot_s, seconds, checked.tpot_s))
    rate = FigureRow("tokens of whole texts", result.tokens_per_s, rate_text, checked.tokens_per_s)
    return [*rows, rate]


@dataclass(frozen=True, slots=True)
class _ShownStep:
    """A step with its name, and the seconds of the generated step."""

    name: str
    step: DecoderStep
    real_s: float | None = None


_STEPS: Sequence[Column[_ShownStep]] = (
    Column("step", lambda row: row.name, left=True),
    Column("new tokens", lambda row: str(row.step.tokens)),
    Column("in the cache", lambda row: str(row.step.past)),
    Column("latency", lambda row: seconds(row.step.run.latency_s.value)),
    Column("", lambda row: uncertainty_text(row.step.run.latency_s)),
    Column("source", lambda row: source_text(row.step.run.provenance), left=True),
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


def _load(result: GenerationResult, load: GenerationLoad) -> Iterator[RenderableType]:
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
    memory = result.memory
    for line in result.warnings:
        yield f"Mind: {line}."
    if result.checked is not None:
        yield f"Generated: {result.checked.texts} times, greedily, with random weights."
    if result.divided.cards > 1:
        yield (
            f"Assumed: issuing a collective takes the host as long as {HOST_CALLS} other calls;"
            " cards do not wait for each other otherwise."
        )
    if memory.unknown:
        yield f"The peak lacks {'; '.join(memory.unknown)}."
    if (device := result.prompt.run.device) is not None:
        yield from assumed_launching(printable(result.model), device)
    if result.generation.step_s:
        yield f"Between two steps the server takes {seconds(result.generation.step_s)}."
