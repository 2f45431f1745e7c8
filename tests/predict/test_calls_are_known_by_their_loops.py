"""Calls of recorded programs have features of the loops that they run, as ONNX nodes have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Brick
from bricks.graph.view import graph_of, parse_model
from bricks.predict.features import (
    CONVOLUTION,
    PRODUCT,
    SIZES,
    STREAM,
    BrickFeatures,
    extract_features,
)
from bricks.reading.read import read_model
from bricks.zoo import programs

PLACE = {entry.name: entry.path for entry in programs()}


def bricks_of(program: str) -> Iterator[Brick]:
    model = read_model(PLACE[program])
    graph = graph_of(parse_model(model.skeleton))
    return iter(build(model, graph, Granularity.parse("executed")).bricks.values())


def called(program: str, *operators: str) -> list[BrickFeatures]:
    bricks = [b for b in bricks_of(program) if b.operators[0].rpartition(".")[2] in operators]
    assert bricks, f"{program} calls none of {operators}"
    return [extract_features(brick) for brick in bricks]


def sizes_of(found: BrickFeatures) -> dict[str, float]:
    return {
        name: round(2.0**size) for name, size in zip(SIZES[found.kind], found.sizes, strict=True)
    }


@pytest.mark.parametrize("program", ["torch_bert_training", "torch_llama", "torch_dlrm"])
def test_products_are_known_by_batch_rows_columns_and_terms(program: str) -> None:
    for found in called(program, "mm", "addmm", "bmm", "baddbmm"):
        assert found.kind == PRODUCT
        size = sizes_of(found)
        assert 2 * size["batch"] * size["rows"] * size["columns"] * size["terms"] == found.flops


@pytest.mark.parametrize("program", ["torch_resnet44", "torch_mobilenet_v3", "torch_convnext"])
def test_convolutions_are_known_by_their_windows(program: str) -> None:
    for found in called(program, "convolution"):
        assert found.kind == CONVOLUTION
        size = sizes_of(found)
        made = size["pixels"] * size["outputs"] * size["groups"]
        assert 2 * made * size["terms"] * size["taps"] == found.flops


def test_gradients_of_convolutions_are_another_kernel_and_tell_what_is_asked_for() -> None:
    found = called("torch_resnet44_training", "convolution_backward")
    asked = {call.tag("activation") for call in found}
    assert asked == {"010", "110"}  # of the weight alone where the input is the image
    forward = called("torch_resnet44_training", "convolution")
    assert not {call.kernel for call in found} & {call.kernel for call in forward}
    assert {call.kind for call in found} == {CONVOLUTION}


def test_a_depthwise_convolution_has_a_form_of_its_own() -> None:
    assert "depthwise" in {call.tag("form") for call in called("torch_mobilenet_v3", "convolution")}


def test_the_memory_format_is_told() -> None:
    plain = called("torch_resnet50", "convolution")
    last = called("torch_resnet50_channels_last", "convolution")
    assert {call.tag("summed") for call in plain} == {"False"}
    assert "True" in {call.tag("summed") for call in last}


def test_transposed_factors_are_told() -> None:
    tags = {call.tag("transposed") for call in called("torch_bert_training", "mm", "addmm")}
    assert {"01", "10"} <= tags


def test_all_other_calls_are_streams() -> None:
    assert {call.kind for call in called("torch_bert", "add", "gelu", "native_layer_norm")} == {
        STREAM
    }
