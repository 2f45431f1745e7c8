"""Scales and zero points decide what a runtime fuses: plans made without weights know them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value

from bricks import Bench
from bricks.reading.read import read_model

CHANNELS = 100  # more values than those of a shape


def quantised(*, bias_scale: float) -> onnx.ModelProto:
    """A convolution with a bias between nodes that dequantise and quantise, channel by channel."""
    draw = np.random.default_rng(0)
    scales = np.linspace(0.01, 0.02, CHANNELS).astype(np.float32)
    weights = draw.integers(-127, 128, (CHANNELS, 8, 3, 3))
    biases = draw.integers(-99, 100, CHANNELS)
    constants = [
        constant("one", 0.5, "FLOAT"),
        constant("middle", 128, "UINT8"),
        constant("w8", weights, "INT8"),
        constant("w scales", scales, "FLOAT"),
        constant("w zeros", np.zeros(CHANNELS), "INT8"),
        constant("b32", biases, "INT32"),
        constant("b scales", bias_scale * scales, "FLOAT"),
        constant("b zeros", np.zeros(CHANNELS), "INT32"),
    ]
    nodes = [
        node("QuantizeLinear", ["x", "one", "middle"], ["x8"]),
        node("DequantizeLinear", ["x8", "one", "middle"], ["xf"]),
        node("DequantizeLinear", ["w8", "w scales", "w zeros"], ["wf"], axis=0),
        node("DequantizeLinear", ["b32", "b scales", "b zeros"], ["bf"], axis=0),
        node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1] * 4),
        node("QuantizeLinear", ["c", "one", "middle"], ["c8"]),
        node("DequantizeLinear", ["c8", "one", "middle"], ["y"]),
    ]
    inputs, outputs = [value("x", [1, 8, 6, 6])], [value("y", [1, CHANNELS, 6, 6])]
    return model(nodes, inputs, outputs, constants)


@pytest.mark.parametrize(("bias_scale", "convolution"), [(0.5, "QLinearConv"), (0.7, "Conv")])
def test_a_convolution_is_fused_if_its_bias_has_the_scale_of_its_products(
    tmp_path: Path, bias_scale: float, convolution: str
) -> None:
    path = save(quantised(bias_scale=bias_scale), tmp_path, external="data.bin", threshold=0)
    with Bench(tmp_path / "cache", threads=1) as bench:
        read = bench.read(path)
        bricks = bench.decompose(read).bricks.values()
        found = {name.rpartition(".")[2] for brick in bricks for name in brick.operators}
        assert {name for name in found if name.endswith("Conv")} == {convolution}
        assert bench.verify(read).exact


def test_models_that_are_fused_otherwise_have_other_digests(tmp_path: Path) -> None:
    one, other = (
        read_model(save(quantised(bias_scale=scale), tmp_path, f"{scale}.onnx"))
        for scale in (0.5, 0.7)
    )
    assert one.digest != other.digest
