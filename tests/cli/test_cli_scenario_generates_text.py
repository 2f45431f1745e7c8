"""`bricks scenario --scenario generation`: what it prints, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Here

from bricks.zoo import zoo_folder

ASKED = ("--scenario", "generation", "--prompt-tokens", 8, "--new-tokens", 6, "--threads", 1)


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """A decoder of one layer."""
    folder = str(zoo_folder() / "recipes")
    sys.path.insert(0, folder)
    try:
        import onnx_decoders as recipe
    finally:
        sys.path.remove(folder)
    of = recipe.Architecture(32, 1, 2, 1, 64, 100, 64)
    path = tmp_path / "small.onnx"
    path.write_bytes(recipe.build("small", of, recipe.llama).SerializeToString())
    return path


def test_text_is_predicted_beside_what_is_generated(
    here: Here, decoder: Path, few_queries: None
) -> None:
    """By a real runtime: the fake one cannot infer all shapes of a decoder."""
    words = ("scenario", decoder, *ASKED, "--batch", 2)
    facts = here(*words, "--check", "--json", runtime=None).json
    assert (facts["scenario"], facts["batch"], facts["qps"]) == ("generation", 2, None)
    for figure in ("ttft_s", "tpot_s", "total_s", "tokens_per_s"):
        assert facts[f"{figure}_low"] <= facts[figure]
        assert facts[f"{figure}_high"] is None or facts[figure] <= facts[f"{figure}_high"]
    assert [step["past_tokens"] for step in facts["steps"]] == [8, 9, 11, 12]
    assert facts["memory"]["cache_bytes"] == 2 * 2 * 13 * 16 * 4
    assert set(facts["checked"]["steps_s"]) == {"8", "9", "10", "11", "12"}
    assert facts["checked"]["tpot_s"] > 0 and facts["step_cost_s"] > 0
    shown = here(*words, "--qps", 5, runtime=None)
    assert ".onnx, up to 2 texts at once of 8 prompt and 6 new tokens" in shown.out
    assert "first token, 99th percentile" in shown.out
    assert "Continuous batching: " in shown.out
    asked = (*words, "--qps", 5, "--json")
    llm = ("llm", *(word for word in asked[1:] if word not in ("--scenario", "generation")))
    assert here(*llm, runtime=None).json == here(*asked, runtime=None).json
    assert "are above saturation" in here(*words, "--qps", 1e9, runtime=None).out


def test_what_makes_no_sense_is_one_line(here: Here) -> None:
    for model, words, *facts in (
        ("squeezenet", ASKED, "squeezenet", "'input_ids'"),
        ("decoder_gpt2", (*ASKED, "--slo", "5ms"), "--slo", "generation"),
        ("decoder_gpt2", (*ASKED, "--batching", 4), "--batching", "generation"),
        ("decoder_gpt2", (*ASKED, "--batch", 0), "--batch 0"),
        ("decoder_gpt2", (*ASKED, "--check", "--qps", 2), "--qps"),
        ("decoder_gpt2", (*ASKED, "--check", "--step-cost", "1ms"), "--step-cost"),
        ("decoder_gpt3", ASKED, "did you mean decoder_gpt2?"),
        ("squeezenet", ("--new-tokens", 4), "--new-tokens", "single-stream"),
    ):
        failed = here("scenario", model, *words)
        assert failed.status in (1, 2), words
        assert all(fact in failed.complaint for fact in facts), failed.complaint
