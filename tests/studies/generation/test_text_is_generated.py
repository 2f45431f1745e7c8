"""Text that decoders generate: steps at any length, batches that texts join and leave."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_environment
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from tiers import slow_but

from bricks import (
    Bench,
    Conditions,
    Generation,
    ModelError,
    StopRule,
    UsageError,
    predict_generation,
)
from bricks.architectures.decoder import decoder_model
from bricks.architectures.published import PUBLISHED
from bricks.compose.queueing.batching import (
    ContinuousPolicy,
    PromptSeconds,
    StepSeconds,
    TextLengths,
)
from bricks.compose.queueing.run import RunLatency
from bricks.compose.queueing.simulation import ServerRun, simulate
from bricks.graph.decoder import Decoder, decoder_of
from bricks.studies.generation.options import GenerationOptions
from bricks.studies.generation.steps import DecoderStep, StepTimes, lengths_between, steps_of
from bricks.units.interval import Interval
from bricks.zoo import decoders, entry, zoo_folder

SMALL = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "inner": 128, "vocabulary": 300,
         "positions": 128}  # fmt: skip

# How long anything takes is nothing here.
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


@pytest.fixture(scope="module")
def recipe() -> Any:
    folder = str(zoo_folder() / "recipes")
    sys.path.insert(0, folder)
    try:
        import onnx_decoders
    finally:
        sys.path.remove(folder)
    return onnx_decoders


@pytest.fixture(scope="module", params=slow_but("llama".__eq__, ["llama", "gpt2"]))
def small(request: pytest.FixtureRequest, recipe: Any, tmp_path_factory: Any) -> Path:
    """A decoder of two layers."""
    shared = {"kv_heads": 4} if request.param == "gpt2" else {}
    of = recipe.Architecture(**{**SMALL, **shared})
    path: Path = tmp_path_factory.mktemp("decoder") / f"{request.param}.onnx"
    path.write_bytes(
        recipe.build(request.param, of, getattr(recipe, request.param)).SerializeToString()
    )
    return path


def step(past: int, seconds: float, batch: int = 1, tokens: int = 1) -> DecoderStep:
    run = RunLatency(Interval(seconds, 0.9 * seconds, 1.1 * seconds), np.ones(8))
    return DecoderStep(batch, tokens, past, run)


@given(st.integers(1, 4000), st.integers(0, 4000))
def test_lengths_reach_from_the_first_to_the_last(first: int, more: int) -> None:
    lengths = lengths_between(first, first + more)
    assert (lengths[0], lengths[-1]) == (first, first + more)
    assert lengths == sorted(set(lengths)) and len(lengths) <= 4


@given(st.floats(1e-4, 1), st.floats(0, 1e-3), st.integers(0, 500))
def test_what_grows_by_a_constant_for_each_token_is_known_between_lengths(
    first_s: float, each_s: float, past: int
) -> None:
    times = StepTimes({}, {1: [step(at, first_s + each_s * at) for at in (0, 100, 200, 500)]})
    assert times.at(1, past).value == pytest.approx(first_s + each_s * past)
    assert times.interpolation_error(1) == pytest.approx(0, abs=1e-9)


def test_a_length_that_is_off_its_neighbours_widens_the_interval_between() -> None:
    straight = StepTimes({}, {1: [step(0, 1.0), step(100, 2.0), step(200, 3.0)]})
    bent = StepTimes({}, {1: [step(0, 1.0), step(100, 2.5), step(200, 3.0)]})
    for past in (50, 150):
        assert bent.at(1, past).high / bent.at(1, past).value == pytest.approx(1.1 * 1.2)
        assert straight.at(1, past).high / straight.at(1, past).value == pytest.approx(1.1)
    assert bent.at(1, 100) == bent.steps[1][1].run.latency_s


def generate(
    arrivals_s: list[float], lengths: TextLengths, most: int, prompt_s: PromptSeconds,
    step_s: StepSeconds,
) -> ServerRun:  # fmt: skip
    return simulate(arrivals_s, [ContinuousPolicy(lengths, most, prompt_s, step_s)])


arrivals = st.lists(st.floats(0, 20), min_size=1, max_size=30).map(sorted)


@settings(deadline=None)
@given(arrivals, st.integers(1, 8), st.integers(1, 6))
def test_every_request_gets_its_tokens_however_texts_are_joined(
    times_s: list[float], new_tokens: int, most: int
) -> None:
    lengths: list[tuple[int, int]] = []

    def step_s(size: int, past: int, number: int) -> float:
        lengths.append((size, past))
        return 0.1 + 0.01 * size

    found = generate(times_s, TextLengths(16, new_tokens), most, lambda number: 0.5, step_s)
    assert sum(size for size, _ in lengths) == len(times_s) * (new_tokens - 1)
    assert all(size <= most and 16 <= past < 16 + new_tokens for size, past in lengths)
    assert (found.first_latencies_s >= 0.5 - 1e-9).all()
    further_s = found.done_s - found.first_s
    assert (further_s >= 0.11 * (new_tokens - 1) - 1e-9).all()
    assert found.busy_s <= found.span_s + 1e-9


@given(arrivals)
def test_without_batches_requests_wait_for_each_other(times_s: list[float]) -> None:
    found = generate(
        times_s, TextLengths(4, 3), 1, lambda number: 1.0, lambda size, past, number: 0.25
    )
    free_s = 0.0
    for arrived_s, ttft_s, latency_s in zip(
        times_s, found.first_latencies_s, found.latencies_s, strict=True
    ):
        began_s = max(free_s, arrived_s)
        assert ttft_s == pytest.approx(began_s + 1.0 - arrived_s)
        assert latency_s - ttft_s == pytest.approx(2 * 0.25)
        free_s = began_s + 1.5


def test_a_prompt_is_waited_for_by_the_texts_that_are_worked_on() -> None:
    found = generate(
        [0.0, 0.1], TextLengths(4, 3), 2, lambda number: 1.0, lambda size, past, number: 0.25
    )
    assert found.first_latencies_s.tolist() == pytest.approx([1.0, 1.9])
    assert (found.done_s - found.first_s).tolist() == pytest.approx([1.5, 0.5])
    assert found.batches.tolist() == [2, 2]


def test_the_zoo_has_decoders_that_tell_what_they_keep() -> None:
    found = {each.name: decoder_of(each.path, each.name) for each in decoders()}
    assert len(found) == 6
    gpt2 = found["decoder_gpt2"]
    assert gpt2.shapes(2, 3, 5)["attention_mask"] == (2, 8)
    assert gpt2.shapes(2, 3, 5)["past_key_values.11.value"] == (2, 12, 5, 64)
    assert gpt2.cache_bytes(1, 1) == 2 * 12 * 768 * 4
    assert found["decoder_grouped"].cache_bytes(4, 10) == 4 * 10 * 2 * 8 * 3 * 64 * 4
    assert Decoder.from_json(json.loads(json.dumps(gpt2.to_json()))) == gpt2


@pytest.mark.parametrize("name", ["decoder_gpt2", "decoder_llama_7b_int4"])
def test_decoders_of_the_zoo_are_what_their_recipe_builds(recipe: Any, name: str) -> None:
    (shipped,) = (each for each in recipe.MODELS if each.name == name)
    known = entry(name)
    built = shipped.build().SerializeToString(deterministic=True)
    assert hashlib.sha256(built).hexdigest() == known.sha256
    assert known.path.read_bytes() == built
    assert shipped.parameters() == known.parameters


def test_other_models_are_no_decoders() -> None:
    with refused(ModelError, "squeezenet", "input_ids", "text-generation-with-past"):
        decoder_of(entry("squeezenet").path, "squeezenet")
    with refused(ModelError, "gpt2", "'past'", "text-generation-with-past"):
        decoder_of(entry("gpt2").path, "gpt2")


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"prompt_tokens": 0}, "--prompt 0"),
        ({"new_tokens": 1 << 30}, f"--new {1 << 30}"),
        ({"batch": 0}, "--batch 0"),
        ({"qps": -1.0}, "--qps -1"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Any], option: str) -> None:
    with refused(UsageError, option):
        Generation(**{"prompt_tokens": 8, "new_tokens": 4, **asked})


def texts(
    model: Path | str, prompt: int, new: int, *, qps: float | None = None, **options: Any
) -> GenerationOptions:
    """Two of them."""
    generation = Generation(prompt, new, batch=2, qps=qps)
    return GenerationOptions(model=str(model), generation=generation, **options)


@pytest.fixture(scope="module")
def cache(small: Path, tmp_path_factory: Any) -> Path:
    """Where the steps of one text and of more are measured."""
    folder: Path = tmp_path_factory.mktemp("cache")
    return folder


def test_text_is_predicted_from_steps_of_a_few_lengths(small: Path, cache: Path) -> None:
    with Bench(cache, threads=1, published=False, conditions=ONCE) as bench:
        alone = predict_generation(bench.workspace, texts(small, 12, 9))
        loaded = predict_generation(bench.workspace, texts(small, 12, 9, qps=1.0))
    assert [each.past for each in alone.shown] == [12, 14, 17, 19]
    assert (alone.prompt.tokens, alone.prompt.past) == (12, 0)
    assert alone.tpot_s is not None
    assert alone.total_s.value == pytest.approx(alone.ttft_s.value + 8 * alone.tpot_s.value)
    assert alone.tokens_per_s.value == pytest.approx(18 / alone.total_s.value)
    assert alone.memory.cache_bytes == decoder_of(small, "small").cache_bytes(2, 20)
    assert loaded.load is not None and not loaded.load.saturated
    assert loaded.load.tokens_per_s.value == pytest.approx(9.0)
    assert loaded.load.ttft["p99_s"].value >= loaded.load.ttft["p50_s"].value > 0
    assert loaded.load.capacity_qps.low > 1.0


def test_seven_billion_parameters_are_a_few_bricks_and_little_memory(tmp_path: Path) -> None:
    """A worker of a gigabyte learns the plan of four gigabytes of weights."""
    with Bench(tmp_path, threads=1, published=False, memory_bytes=1 << 30) as bench:
        steps = steps_of(bench.workspace, "7B", "int4")
        plan = bench.workspace.plans.decompose(steps.read(bench.workspace, 1, 1, 512)).plan
    assert steps.title == "llama-2-7b (int4)"
    assert len(plan.occurrences) > 10 * 32 > 20 > len(set(plan.keys))
    assert steps.cache_bytes(2, 10) == 2 * 10 * 2 * 32 * 4096 * 4


def test_a_rate_above_saturation_has_no_percentiles(small: Path, cache: Path) -> None:
    with Bench(cache, threads=1, published=False, conditions=ONCE) as bench:
        result = predict_generation(bench.workspace, texts(small, 12, 9, qps=1e6))
    assert result.load is not None and result.load.saturated
    assert not result.load.ttft and not result.load.tpot
    assert result.load.tokens_per_s.value < 9e6


@pytest.mark.slow
def test_generated_text_is_compared_with_its_prediction(small: Path, tmp_path: Path) -> None:
    with Bench(tmp_path, threads=1, published=False, conditions=ONCE) as bench:
        result = predict_generation(bench.workspace, texts(small, 8, 6, check=True))
        steps = bench.read(
            str(small),
            shapes=decoder_of(small, "small").shapes(2, 1, 8),
            values=decoder_of(small, "small").values(2, 1, 8),
        )
        assert bench.verify(steps).exact
    checked = result.checked
    assert checked is not None
    assert sorted(checked.steps_s) == [8, 9, 10, 11, 12]
    assert all(taken > 0 for taken in (*checked.steps_s.values(), checked.step_s, checked.ttft_s))
    assert result.generation.step_s > 0
    assert result.prompt.run.provenance.measured_share == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantisation"),
    [
        ("llama-2-7b", "int4"), ("qwen3-0.6b", "int8"), ("gemma-2-2b", "none"),
        ("phi-2-2.7b", "int8"), ("gpt2-124m", "int4"),
    ],
)  # fmt: skip
def test_small_decoders_of_published_forms_generate_text(
    name: str, quantisation: str, tmp_path: Path
) -> None:
    """A decoder with the form of a published one, but two small layers, as an exported file."""
    of = PUBLISHED[name]
    shared = 4 * of.kv_heads // of.heads
    small = replace(of, layers=2, hidden=64, inner=128, vocabulary=300, heads=4, kv_heads=shared)
    path = tmp_path / "small.onnx"
    path.write_bytes(decoder_model("small", small, quantisation).SerializeToString())
    with Bench(tmp_path, threads=1, published=False, conditions=ONCE) as bench:
        result = predict_generation(bench.workspace, texts(path, 8, 4, check=True))
    checked = result.checked
    assert checked is not None and sorted(checked.steps_s) == [8, 9, 10]
    assert result.memory.cache_bytes == 2 * 2 * 2 * 11 * shared * of.head * 4
    assert result.prompt.run.provenance.measured_share == 1.0


@pytest.mark.slow
def test_a_program_generates_text_where_its_function_takes_lengths(tmp_path: Path) -> None:
    torch_environment.python()
    name = torch_environment.program("decoder")
    with Bench(tmp_path, runtime="torch", threads=1, conditions=ONCE) as bench:
        result = predict_generation(bench.workspace, texts(name, 6, 5))
        with refused(UsageError, "--check"):
            predict_generation(bench.workspace, texts(name, 6, 5, check=True))
        with refused(UsageError, "torch_gpt2", "batch=", "tokens=", "past_tokens="):
            steps_of(bench.workspace, "torch_gpt2")
    assert [each.past for each in result.shown] == [6, 7, 8, 9]
    assert result.memory.cache_bytes == 2 * 2 * 10 * 32 * 4
    assert result.tpot_s is not None and result.tpot_s.value > 0
