"""Generated text: in one sentence, and as tables for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.architectures.published import asked_as_size
from bricks.compose.device.collectives import HOST_CALLS
from bricks.compose.lanes import DEVICE
from bricks.errors import printable
from bricks.network.times import PUBLISHED
from bricks.report.tables import (
    Column,
    assumed_launching,
    number,
    part_column,
    percent,
    seconds,
    size,
    table_of,
)
from bricks.report.words import (
    FigureRow,
    count_text,
    figure_columns,
    links_text,
    listed,
    place_text,
    rate_text,
    source_text,
    target_text,
    uncertainty_text,
)
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


_WEIGHTS: Column[GenerationResult] = Column("weights", lambda row: size(row.memory.weight_bytes))
_GPU: Sequence[Column[GenerationResult]] = (
    Column("limit", lambda row: row.limited_by, left=True),
    part_column(
        "CUDA graph", lambda row: row.graph_tokens_per_s, lambda rate: token_rate_text(rate.value)
    ),
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


# Other rows that the answer names one by one.
_FEW = 3


def llm_answer(result: LlmResult) -> str:
    """Sentences about the first known row, and the rates of the other rows."""
    first = result.known[0]
    name = first.model.partition(" (")[0]
    read = f"{result.asked} is read as {name}:" if asked_as_size(result.asked) else ""
    sentences = [read, _lack(first), _made(result, first), _others(result)]
    return " ".join(filter(None, sentences))


def token_rate_text(value: float) -> str:
    """Tokens a second: ``0.45``, ``5.1``, ``38``, ``1,250``."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _made(result: LlmResult, of: GenerationResult) -> str:
    rate, texts = of.decode_tokens_per_s, of.generation.batch if of.generation.qps is None else 1
    batch = f" for {texts} texts at once" if texts > 1 else ""
    place = _place(of, result)
    return (
        f"{printable(of.model)} makes {token_rate_text(rate.value)} tokens/s"
        f" ({uncertainty_text(rate, token_rate_text)}) {place}{batch}{_limit(of)};"
        f" the first comes after {seconds(of.ttft_s.value)}; {_collectives(of)}{_memory(of)}:"
        f" {source_text(of.last_step.run.provenance)}."
    )


def _place(of: GenerationResult, result: LlmResult) -> str:
    """Where it runs: ``on 8 nvidia-h200`` if cards divide it."""
    cards = of.divided.cards
    on_cards = f"on {cards} {of.target.system.name}"
    return place_text(of.target, result.here) if cards == 1 else on_cards


def _collectives(of: GenerationResult) -> str:
    """What the collectives of a step take, and what is known of the network between cards."""
    found, divided = of.last_step.collectives, of.divided
    if found is None or divided.network is None or divided.bandwidth is None:
        return ""
    network = f"network stated: {divided.bandwidth * 8 / 1e9:g} Gbit/s, not checked here"
    if divided.network_origin == PUBLISHED:
        network = links_text(divided.network, divided.bandwidth)
    step = "a token" if of.shown else "for the prompt"
    return f"collectives take {seconds(found.seconds.value)} {step} ({network}); "


def _limit(of: GenerationResult) -> str:
    """What limits steps on a device; where it is the host, the rate of CUDA graphs."""
    if of.limited_by is None:
        return ""
    graph = of.graph_tokens_per_s
    if of.limited_by == DEVICE or graph is None:
        return f", limited by the {of.limited_by}"
    rates = f"{token_rate_text(graph.value)} tokens/s ({uncertainty_text(graph, token_rate_text)})"
    return f", limited by the {of.limited_by}, and {rates} as a CUDA graph"


def _memory(of: GenerationResult) -> str:
    parts = {"weights": of.memory.weight_bytes, "cache": of.memory.cache_bytes}
    known = [f"{name} {size(value)}" for name, value in parts.items() if value is not None]
    each = " a card" if known and of.divided.cards > 1 else ""
    return f"{', '.join(known)}{each}" if known else "its memory is not known"


def _lack(of: GenerationResult) -> str:
    if of.fits:
        return ""
    each = "on each card " if of.divided.cards > 1 else ""
    has = f"{of.target.system.name} has {size(of.host_bytes)}"
    fits = f": --tensor-parallel {of.fitting_cards} fits" if of.fitting_cards else ""
    needs = f"{printable(of.model)} needs {size(of.needed_bytes)} {each}".rstrip()
    return f"{needs}, and {has}{fits}. With enough memory,"


def _others(result: LlmResult) -> str:
    """The rates of a few other rows, or the highest of many."""
    first, *others = result.known
    if len(others) > _FEW:
        best = max(result.known, key=lambda row: row.decode_tokens_per_s.value)
        return f"At most {_other(result, None, best)}."
    rates = [_other(result, first, row) for row in others]
    return f"{listed(rates)}." if rates else ""


def _other(result: LlmResult, first: GenerationResult | None, row: GenerationResult) -> str:
    """The rate of a row, named by what distinguishes it from the ``first``."""
    rate = f"{token_rate_text(row.decode_tokens_per_s.value)} tokens/s"
    texts, place = "", ""
    if first is None or row.target.key != first.target.key:
        place = f" {_place(row, result)}"
    if first is None or row.generation.batch != first.generation.batch:
        texts = f" for {count_text(row.generation.batch, 'text')}"
    return f"{rate}{place}{texts}"
