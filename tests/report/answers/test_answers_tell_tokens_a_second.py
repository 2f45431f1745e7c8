"""The answer about generated text: rates, the first token, memory, and what is lacking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from store_examples import make_target

from bricks.compose.queueing.run import RunLatency
from bricks.report.generation import llm_answer, token_rate_text
from bricks.studies.generation.options import Generation
from bricks.studies.generation.result import (
    GenerationFailure,
    GenerationMemory,
    GenerationResult,
    LlmResult,
)
from bricks.studies.generation.steps import DecoderStep, StepTimes
from bricks.units.facts import json_of
from bricks.units.interval import Interval

HERE, GIB = make_target("lab", threads=2), 1 << 30


def row(batch: int = 1, tpot_s: float = 0.2, **fields: Any) -> GenerationResult:
    """A batch of texts of seconds a token, known to a hundredth; its peak is 5 GiB."""
    run = RunLatency(Interval.exact(20.0), np.ones(4))
    step = DecoderStep(batch, 512, 0, run)
    tpot = Interval(tpot_s, tpot_s / 1.01, tpot_s / 0.99)
    facts: dict[str, Any] = {
        "model": "llama-2-7b (int4)", "target": HERE, "generation": Generation(512, 128, batch),
        "ttft_s": Interval.exact(20.0), "tpot_s": tpot, "total_s": Interval.exact(50.0),
        "tokens_per_s": Interval.exact(128 * batch / 50.0), "prompt": step, "shown": [],
        "times": StepTimes({batch: step}, {batch: [step]}),
        "memory": GenerationMemory(4 * GIB, GIB // 4, 5 * GIB),
    }  # fmt: skip
    return GenerationResult(**{**facts, **fields})


def answer(*rows: GenerationResult | GenerationFailure, asked: str = "llama-2-7b") -> str:
    return llm_answer(LlmResult(asked, HERE, rows))


def test_a_decoder_makes_tokens_here() -> None:
    assert answer(row()) == (
        "llama-2-7b (int4) makes 5.0 tokens/s (±1 %) here with 2 threads; the first comes after"
        " 20.0 s; weights 4.0 GiB, cache 256.0 MiB: 100 % measured."
    )


def test_a_size_is_read_as_an_architecture() -> None:
    assert answer(row(), asked="7B").startswith("7B is read as llama-2-7b: llama-2-7b (int4) makes")


def test_further_batches_and_systems_have_their_rates() -> None:
    farm = make_target("farm")
    text = answer(row(), row(8, 0.25), replace(row(), target=farm))
    assert text.endswith(" 32 tokens/s for 8 texts and 5.0 tokens/s on farm with 1 thread.")
    assert "for 8 texts at once; the first" in answer(row(8, 0.25))
    many = answer(*(row(size) for size in (1, 2, 4, 8, 16)))
    assert many.endswith("measured. At most 80 tokens/s here with 2 threads for 16 texts.")


def test_memory_that_the_system_lacks_comes_first() -> None:
    small = replace(HERE, system=replace(HERE.system, identity={"memory_gib": 4}))
    assert answer(row(target=small)).startswith(
        "llama-2-7b (int4) needs 5.0 GiB, and lab has 4.0 GiB. With enough memory, llama-2-7b"
    )


def test_a_row_that_is_not_known_leaves_the_others() -> None:
    failure = GenerationFailure("llama-2-7b", "farm", 1, "nothing is known there")
    result = LlmResult("llama-2-7b", HERE, [failure, row()])
    assert llm_answer(result).startswith("llama-2-7b (int4) makes 5.0 tokens/s")
    assert list(result.errors) == ["nothing is known there"]
    facts = json_of(result)
    assert [line["error"] for line in facts["rows"]] == ["nothing is known there", None]
    assert (facts["ttft_s"], facts["weight_bytes"], facts["cache_bytes"]) == (
        20.0,
        4 * GIB,
        GIB // 4,
    )
    assert facts["decode_tokens_per_s"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("rate", "text"), [(0.452, "0.45"), (5.14, "5.1"), (38.2, "38"), (1250.4, "1,250")]
)
def test_rates_have_few_digits(rate: float, text: str) -> None:
    assert token_rate_text(rate) == text
