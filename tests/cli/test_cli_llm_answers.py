"""`bricks llm`: its first line, its table, JSON, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Here

from bricks.zoo import zoo_folder

ASKED = ("--prompt", 8, "--new", 3, "--threads", 1)


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


def test_batches_are_rows_and_the_first_line_answers(here: Here, decoder: Path) -> None:
    """By a real runtime: the fake one cannot infer all shapes of a decoder."""
    words = ("llm", decoder, *ASKED, "--batch", "1,2")
    facts = here(*words, "--json", runtime=None).json
    assert [row["batch"] for row in facts["rows"]] == [1, 2]
    for figure in ("ttft_s", "tpot_s", "total_s", "tokens_per_s", "decode_tokens_per_s"):
        assert facts[f"{figure}_low"] <= facts[figure]
        assert facts["rows"][0][figure] == facts[figure]
    assert facts["cache_bytes"] == 2 * 10 * 16 * 4
    assert facts["rows"][1]["cache_bytes"] == 2 * facts["cache_bytes"]
    assert facts["weight_bytes"] > 0 and facts["answer"].startswith("small makes ")
    shown = here(*words, runtime=None).out
    assert shown.startswith(facts["answer"])
    assert "weights" in shown and "in the cache" not in shown
    assert "in the cache" in here(*words, "--all", runtime=None).out
    former = ("llm", decoder, "--prompt-tokens", 8, "--new-tokens", 3, "--threads", 1)
    assert here(*former, "--json", runtime=None).json["rows"] == facts["rows"][:1]


@pytest.mark.slow
def test_texts_are_generated_beside_their_prediction(
    here: Here, decoder: Path, few_queries: None
) -> None:
    words = ("llm", decoder, "--prompt", 8, "--new", 6, "--threads", 1)
    facts = here(*words, "--check", "--json", runtime=None).json
    assert set(facts["checked"]["steps_s"]) == {"8", "9", "10", "11", "12"}
    assert facts["checked"]["tpot_s"] > 0 and facts["step_cost_s"] > 0
    assert [step["past_tokens"] for step in facts["steps"]] == [8, 9, 11, 12]
    loaded = here(*words, "--batch", 2, "--qps", 5, runtime=None).out
    assert "first token, 99th percentile" in loaded
    assert "Continuous batching: " in loaded
    assert "are above saturation" in here(*words, "--qps", 1e9, runtime=None).out


def test_what_makes_no_sense_is_one_line(here: Here) -> None:
    for model, words, *facts in (
        ("squeezenet", (), "squeezenet", "'input_ids'"),
        ("decoder_gpt2", ("--batch", 0), "--batch 0"),
        ("decoder_gpt2", ("--batch", "1,x"), "--batch 1,x", "1,8"),
        ("decoder_gpt2", ("--prompt", 0), "--prompt 0"),
        ("decoder_gpt2", ("--check", "--qps", 2), "--qps"),
        ("decoder_gpt2", ("--check", "--batch", "1,2"), "--batch"),
        ("decoder_gpt2", ("--check", "--step-cost", "1ms"), "--step-cost"),
        ("decoder_gpt2", ("--quant", "int4"), "--quant", "decoder_gpt2"),
        ("7B", ("--quant", "int5"), "--quant int5", "int8"),
        ("7B", ("--prompt", 5000), "llama-2-7b", "4096"),
        ("2000B", (), "2000B", "405B"),
        ("qwen3", (), "qwen3-8b"),
        ("decoder_gpt3", (), "did you mean decoder_gpt2?"),
        ("7BB", (), "'7BB'", "such as 7B"),
        ("./none.onnx", (), "no file or folder", "none.onnx"),
        ("lama-2-7b", (), "did you mean llama-2-7b?"),
    ):
        failed = here("llm", model, *words)
        assert failed.status in (1, 2), words
        assert all(fact in failed.complaint for fact in facts), failed.complaint
