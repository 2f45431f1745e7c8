"""Steps of published decoders are written from their dimensions as a GPU's recording has them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import pytest
from tiers import slow_but

from benchmarks.gpu.raw import protos
from bricks.architectures.architecture import Architecture, part_of
from bricks.architectures.published import PUBLISHED
from bricks.backends.torch.cuda_calls import translated
from bricks.backends.torch.decoders import decoder_step
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Plan
from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.graph.view import graph_of
from bricks.reading.digest import digest
from tests.support.refusals import refused

LM1B = Architecture(
    layers=16, hidden=2048, heads=32, kv_heads=8, head=64, inner=8192, vocabulary=32000,
    positions=8192, published=1.1e9,
)  # fmt: skip
# Recorded programs with their texts, new tokens and tokens before.
RECORDED = {
    "lm1b_prefill_b1": (1, 2048, 0),
    "lm1b_decode_b1_2048": (1, 1, 2047),
    "lm1b_decode_b16_2048": (16, 1, 2047),
}


@cache
def recorded() -> dict[str, onnx.ModelProto]:
    return protos(("programs",))


def of_few_layers(name: str) -> Architecture:
    """A published one with two of its layers, which are all alike."""
    return replace(PUBLISHED[name], layers=2)


def plan_of(proto: onnx.ModelProto) -> Plan:
    """The plan of a program, each call a brick."""
    model = Model("step", Path(), proto.SerializeToString(), (), digest(proto))
    return build(model, graph_of(proto), Granularity.parse("executed")).plan


@pytest.mark.parametrize("name", slow_but("lm1b_decode_b1_2048".__eq__, RECORDED))
def test_a_written_step_has_the_bricks_of_the_recorded_one_in_order(name: str) -> None:
    written = decoder_step("lm1b", LM1B, *RECORDED[name])
    there, known = plan_of(written), plan_of(recorded()[name])
    assert [of.brick for of in there.occurrences] == [of.brick for of in known.occurrences]


def test_a_written_step_makes_the_calls_of_the_device_already() -> None:
    assert translated(decoder_step("lm1b", LM1B, 1, 1, 7)).notes == ()


@pytest.mark.parametrize("name", ["gpt2-xl-1.5b", "phi-2-2.7b", "gemma-3-1b", "qwen3-0.6b"])
def test_architectures_of_all_forms_are_cut_into_calls(name: str) -> None:
    of = of_few_layers(name)
    for tokens, past in ((8, 0), (1, 8)):
        plan = plan_of(decoder_step(name, of, 2, tokens, past))
        live = plan.memory.peak(plan)
        assert live is not None
        assert live.parameter_bytes >= 2 * of.parameters
        assert plan.memory.overheads[0][0] == "inference"


def test_attention_without_a_kernel_of_its_own_is_refused() -> None:
    with refused(ModelError, "gemma-2-2b", "scores"):
        decoder_step("gemma-2-2b", PUBLISHED["gemma-2-2b"], 1, 8, 0)
    with refused(ModelError, "gemma-3-1b", "512"):
        decoder_step("gemma-3-1b", PUBLISHED["gemma-3-1b"], 1, 1, 512)


@pytest.mark.parametrize("name", ["gpt2-124m", "phi-2-2.7b", "qwen3-0.6b"])
def test_a_card_of_several_has_its_part_of_weights_and_cache(name: str) -> None:
    of, cards, tokens = of_few_layers(name), 4, 8
    whole, part = (plan_of(decoder_step(name, of, 2, 1, tokens, n)) for n in (1, cards))
    all_of_it, own = (each.memory.peak(each) for each in (whole, part))
    assert all_of_it is not None and own is not None
    divided = part_of(name, of, cards)
    removed = all_of_it.parameter_bytes - own.parameter_bytes
    cache = 2 * of.layers * 2 * (tokens + 1) * 2 * (of.kept - divided.kept)
    assert removed == 2 * (of.parameters - divided.parameters) + cache


def test_a_card_of_several_makes_the_same_calls_and_exchanges() -> None:
    one, two = (decoder_step("lm1b", LM1B, 2, 1, 7, cards) for cards in (1, 2))
    calls = [Counter(node.op_type for node in each.graph.node) for each in (one, two)]
    for operator in ("mm", "_fused_rms_norm", "silu", "_scaled_dot_product_cudnn_attention"):
        assert calls[0][operator] == calls[1][operator]
    assert calls[1]["all_reduce_"] == 2 * LM1B.layers + 1
    assert calls[1]["all_gather_into_tensor"] == 1
    assert one == decoder_step("lm1b", LM1B, 2, 1, 7)


def test_logits_are_those_of_the_whole_vocabulary() -> None:
    gpt2 = PUBLISHED["gpt2-124m"]
    assert gpt2.vocabulary % 4  # padded on cards
    for cards in (1, 4):
        proto = decoder_step("gpt2", gpt2, 3, 1, 7, cards)
        logits = proto.graph.output[-1].type.tensor_type.shape.dim
        assert [dim.dim_value for dim in logits] == [3, 1, gpt2.vocabulary]
