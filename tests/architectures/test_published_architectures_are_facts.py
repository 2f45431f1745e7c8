"""Published architectures: parameters, names, and the decoders that follow from them."""

from __future__ import annotations

import pytest
from refusals import refused

from bricks.architectures.decoder import QUANTISATIONS, decoder_model
from bricks.architectures.published import PUBLISHED, architecture, nearest_name
from bricks.errors import ModelError


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_number(name: str) -> None:
    of = PUBLISHED[name]
    assert of.parameters == pytest.approx(of.published, rel=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_of_the_decoder_are_the_parameters(name: str) -> None:
    """Tables of rotations are no parameters; a tied embedding is written twice, as in exports."""
    of = PUBLISHED[name]
    weights = decoder_model(name, of, "none").graph.initializer
    count = 0
    for tensor in weights:
        size = 1
        for dim in tensor.dims:
            size *= dim
        if tensor.external_data and tensor.name not in ("cos", "sin"):
            count += size
    assert count - of.tied * of.vocabulary * of.hidden == of.parameters


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("7B", "llama-2-7b"),
        ("8b", "llama-3.1-8b"),
        ("1.5B", "qwen2.5-1.5b"),
        ("0.5B", "qwen2.5-0.5b"),
        ("500M", "qwen2.5-0.5b"),
        ("124M", "gpt2-124m"),
        ("6.7B", "llama-2-7b"),
        ("gpt2", "gpt2-124m"),
        ("GPT2-XL", "gpt2-xl-1.5b"),
        ("phi-2", "phi-2-2.7b"),
        ("mistral-7b", "mistral-7b-v0.3"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"),
    ],
)
def test_a_size_or_a_name_means_one_architecture(word: str, name: str) -> None:
    assert architecture(word) == name


def test_what_means_no_architecture_or_several_is_told() -> None:
    assert architecture("resnet50") is None
    assert nearest_name("lama-2-7b") == "llama-2-7b"
    with refused(ModelError, "2000B", "405B"):
        architecture("2000B")
    with refused(ModelError, "0B", "82M"):
        architecture("0B")
    with refused(ModelError, "qwen3", "qwen3-0.6b", "qwen3-32b"):
        architecture("qwen3")


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_a_decoder_of_any_size_is_a_small_file(quantisation: str) -> None:
    model = decoder_model("llama-3.1-405b", PUBLISHED["llama-3.1-405b"], quantisation)
    assert model.ByteSize() < 1 << 20


def test_few_bits_are_a_quarter_or_an_eighth_of_a_matrix() -> None:
    of = PUBLISHED["llama-2-7b"]

    def matrix_bytes(quantisation: str) -> int:
        weights = decoder_model("7b", of, quantisation).graph.initializer
        own = [w for w in weights if w.name.startswith(("0.down", "0.up"))]
        return sum(int(e.value) for w in own for e in w.external_data if e.key == "length")

    elements = 2 * of.hidden * of.inner
    assert matrix_bytes("none") == 4 * elements
    assert matrix_bytes("int8") == elements + 4 * elements // 32
    assert matrix_bytes("int4") == elements // 2 + 4 * elements // 32
