"""Quantised models, made by ONNX Runtime's own tool."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
from factories import constant, model, node, value


def quantise(source: Path, target: Path, form: str, *, signed: bool = True) -> None:
    """Write ``source``, a model with one input, quantised to 8 bits, which are ``signed`` or not.

    That is meant of activations; weights are signed.
    """
    # It warns of its own deprecations.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime import quantization as q

        class Reader(q.CalibrationDataReader):
            def __init__(self) -> None:
                (data,) = onnx.load(source, load_external_data=False).graph.input
                shape = [d.dim_value or 1 for d in data.type.tensor_type.shape.dim]
                random = np.random.default_rng(0)
                self._left = [{data.name: random.random(shape, np.float32)} for _ in range(3)]

            def get_next(self) -> dict[str, np.ndarray] | None:
                return self._left.pop() if self._left else None

        if form == "dynamic":
            q.quantize_dynamic(source, target)
        else:
            q.quantize_static(
                source,
                target,
                Reader(),
                quant_format=q.QuantFormat[form],
                activation_type=q.QuantType.QInt8 if signed else q.QuantType.QUInt8,
                weight_type=q.QuantType.QInt8,
            )


def scaled_by_channel() -> onnx.ModelProto:
    """A quantised convolution with a scale for each output channel, and as many input channels.

    OpenVINO 2026.4 applies these scales to the input channels.
    """
    channels = 8
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (channels, channels, 3, 3))
    return model(
        [node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], pads=[1] * 4)],
        [value("x", [1, channels, 16, 16], "UINT8")],
        [value("y", [1, channels, 16, 16], "UINT8")],
        [
            constant("w", weights, "INT8"),
            constant("ws", np.linspace(0.001, 0.02, channels), "FLOAT"),
            constant("wz", np.zeros(channels), "INT8"),
            *(constant(name, size, "FLOAT") for name, size in (("xs", 0.02), ("ys", 0.2))),
            *(constant(name, 128, "UINT8") for name in ("xz", "yz")),
        ],
    )
