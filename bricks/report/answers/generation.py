"""The answer about generated text: tokens a second, the first token, and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.architectures.published import asked_as_size
from bricks.compose.occurrences import DEVICE
from bricks.errors import printable
from bricks.network.times import PUBLISHED
from bricks.report.answers.words import (
    links_text,
    listed,
    place_text,
    source_text,
    uncertainty_text,
)
from bricks.report.figures import count_text
from bricks.report.tables import seconds, size

if TYPE_CHECKING:
    from bricks.studies.generation.result import GenerationResult, LlmResult

# Other rows that the answer names one by one.
_FEW = 3


def llm_answer(result: LlmResult) -> str:
    """Sentences about the first known row, and the rates of the other rows."""
    first = result.known[0]
    sentences = [_read_as(result, first), _lack(first), _made(result, first), _others(result)]
    return " ".join(filter(None, sentences))


def token_rate_text(value: float) -> str:
    """Tokens a second: ``0.45``, ``5.1``, ``38``, ``1,250``."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _read_as(result: LlmResult, first: GenerationResult) -> str:
    """The architecture that a size means; nothing where a model was named."""
    name = first.model.partition(" (")[0]
    return f"{result.asked} is read as {name}:" if asked_as_size(result.asked) else ""


def _made(result: LlmResult, of: GenerationResult) -> str:
    rate, texts = of.decode_tokens_per_s, of.generation.batch if of.generation.qps is None else 1
    batch = f" for {texts} texts at once" if texts > 1 else ""
    place = _place(of, result)
    return (
        f"{printable(of.model)} makes {token_rate_text(rate.value)} tokens/s"
        f" ({uncertainty_text(rate, token_rate_text)}) {place}{batch}{_limit(of)};"
        f" the first comes after {seconds(of.ttft_s.value)}; {_collectives(of)}{_memory(of)}:"
        f" {_source(of)}."
    )


def _place(of: GenerationResult, result: LlmResult) -> str:
    """Where it runs: ``on 8 nvidia-h200`` if cards divide it."""
    cards = of.divided.cards
    return place_text(of.target, result.here) if cards == 1 else f"on {_cards(of)}"


def _cards(of: GenerationResult) -> str:
    return f"{of.divided.cards} {of.target.system.name}"


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


def _source(of: GenerationResult) -> str:
    """Where the step after the longest cache comes from; without one, that of the prompt."""
    return source_text(of.last_step.run.provenance)


def _memory(of: GenerationResult) -> str:
    parts = {"weights": of.memory.weight_bytes, "cache": of.memory.cache_bytes}
    known = [f"{name} {size(value)}" for name, value in parts.items() if value is not None]
    each = " a card" if known and of.divided.cards > 1 else ""
    return f"{', '.join(known)}{each}" if known else "its memory is not known"


def _lack(of: GenerationResult) -> str:
    """The memory that the system lacks; nothing where there is enough."""
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
