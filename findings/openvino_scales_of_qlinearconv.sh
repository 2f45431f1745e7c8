#!/bin/sh
# OpenVINO applies the weight scales of a QLinearConv along input channels, not output channels.
#
# Guess:     a QLinearConv whose w_scale has a scale for each output channel (ONNX: a 1-D tensor with
#            M elements) gives what the operator is defined to give, or is refused.
# Versions:  openvino 2026.4.1, onnxruntime 1.31.1, onnx 1.23.0, numpy 2.4.6.
# Behaviour: with as many input as output channels, 84 % of the outputs differ from the definition, by
#            up to 37 of 255; they are those of scales along the input channels. With other numbers of
#            channels the model is refused: the scales "must match the input shape dimension".
#            ONNX Runtime's outputs are those of the definition, in every value.
# Seen:      onnxruntime: 0.0 % differ from the definition
#            openvino: 83.7 % differ from the definition, 0.0 % from scales along input channels
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openvino==2026.4.1 onnxruntime==1.31.1 onnx==1.23.0 numpy==2.4.6
"$folder/venv/bin/python" - "$folder" <<'END'
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

CHANNELS, WIDTH = 8, 14
rng = np.random.default_rng(0)
weights = rng.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
scales = rng.uniform(0.001, 0.02, CHANNELS).astype(np.float32)
x = rng.integers(0, 256, (1, CHANNELS, WIDTH, WIDTH)).astype(np.uint8)
X_SCALE, Y_SCALE, ZERO = np.float32(0.02), np.float32(0.5), np.uint8(128)

constants = {
    "x_scale": X_SCALE, "x_zero": ZERO, "w": weights, "w_scale": scales,
    "w_zero": np.zeros(CHANNELS, np.int8), "y_scale": Y_SCALE, "y_zero": ZERO,
}
node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=[1, 1, 1, 1])
graph = helper.make_graph(
    [node],
    "conv",
    [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
    [helper.make_tensor_value_info("y", TensorProto.UINT8, x.shape)],
    [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model, full_check=True)
path = f"{sys.argv[1]}/conv.onnx"
onnx.save(model, path)


def defined(axis: int) -> np.ndarray:
    """The convolution in float64, with scales along this axis of the weights."""
    shape = [1, 1, 1, 1]
    shape[axis] = CHANNELS
    real = weights * scales.astype(float).reshape(shape)
    padded = np.pad((x.astype(float) - ZERO) * X_SCALE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros(x.shape)
    for i in range(3):
        for j in range(3):
            window = padded[:, :, i : i + WIDTH, j : j + WIDTH]
            y += np.einsum("nchw,mc->nmhw", window, real[:, :, i, j])
    return np.clip(np.rint(y / Y_SCALE) + ZERO, 0, 255)


def differ(y: np.ndarray, axis: int) -> float:
    """The share of outputs that differ by more than rounding."""
    return float((abs(y.astype(float) - defined(axis)) > 1).mean())


session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
one = session.run(None, {"x": x})[0]
other = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]
print(f"onnxruntime: {100 * differ(one, 0):.1f} % differ from the definition")
print(
    f"openvino: {100 * differ(other, 0):.1f} % differ from the definition,"
    f" {100 * differ(other, 1):.1f} % from scales along input channels"
)
assert differ(one, 0) == 0
assert differ(other, 0) > 0.5 and differ(other, 1) < 0.01
END
