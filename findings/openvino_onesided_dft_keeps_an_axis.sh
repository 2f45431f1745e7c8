#!/bin/sh
# OpenVINO gives DFT(onesided=1) of a real signal one axis more than ONNX.
#
# Guess:     DFT of a real signal [4, 64, 1] with onesided=1 has the shape [4, 33, 2], as ONNX defines.
# Versions:  openvino 2026.4.1, onnxruntime 1.31.1, onnx 1.23.2, numpy 2.4.6.
# Behaviour: the axis of one element stays: [4, 33, 1, 2]. A node that reads the parts by a positive axis
#            reads another one: ReduceL2 over axis 2 gives the absolute values of both parts in place of
#            the magnitude. So with opsets 18 and 20. ONNX Runtime agrees with NumPy.
# Seen:      opset 18 onnxruntime (4, 33) off by 3.33786e-06 openvino (4, 33, 2)
#            opset 20 onnxruntime (4, 33) off by 3.33786e-06 openvino (4, 33, 2)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openvino==2026.4.1 onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import numpy as np
import onnxruntime as ort
import openvino as ov
from onnx import TensorProto as T
from onnx import checker
from onnx import helper as h
from onnx import numpy_helper as nh


def model(opset):
    dft = (
        h.make_node("DFT", ["x", "", "axis"], ["d"], onesided=1)
        if opset >= 20
        else h.make_node("DFT", ["x"], ["d"], onesided=1, axis=1)
    )
    inits = [nh.from_array(np.array([2]), "last")] + (
        [nh.from_array(np.array(1), "axis")] if opset >= 20 else []
    )
    g = h.make_graph(
        [dft, h.make_node("ReduceL2", ["d", "last"], ["y"], keepdims=0)],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [4, 64, 1])],
        [h.make_tensor_value_info("y", T.FLOAT, [4, 33])],
        inits,
    )
    m = h.make_model(g, opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    checker.check_model(m, full_check=True)
    return m.SerializeToString()


x = np.random.default_rng(0).standard_normal((4, 64, 1)).astype("f")
expected = np.abs(np.fft.rfft(x[..., 0]))
core, shapes = ov.Core(), {}
for opset in (18, 20):
    a = ort.InferenceSession(model(opset), providers=["CPUExecutionProvider"]).run(None, {"x": x})[
        0
    ]
    b = core.compile_model(core.read_model(model(opset)), "CPU")(x)[0]
    shapes[opset] = b.shape
    print(
        "opset",
        opset,
        "onnxruntime",
        a.shape,
        "off by",
        np.abs(a - expected).max(),
        "openvino",
        b.shape,
    )
    assert a.shape == (4, 33) and np.abs(a - expected).max() < 1e-3
assert set(shapes.values()) == {(4, 33, 2)}, "OpenVINO's shape has changed"
END
