#!/bin/sh
# OpenVINO ignores attributes of ONNX operators without a word, and computes something else.
#
# Guess:     an attribute that a frontend does not know is refused.
# Versions:  openvino 2026.4.1, onnxruntime 1.31.1, onnx 1.23.2, numpy 2.4.6.
# Behaviour: Resize(antialias=1) is computed as with 0. Resize(keep_aspect_ratio_policy="not_larger")
#            gives the stretched sizes, another shape. GRU(layout=1) is computed as with layout=0, so
#            that batch and sequence change places.
# Seen:      antialias: onnxruntime off by 8.940697e-08 openvino by 0.48645285
#            not_larger: onnxruntime (1, 1, 7, 7) openvino (1, 1, 7, 8)
#            GRU layout=1: reference off by 1.1920929e-07 openvino (3, 1, 3, 4)
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
from onnx.reference import ReferenceEvaluator


def model(node, x, shape, **arrays):
    g = h.make_graph(
        [node],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, x)],
        [h.make_tensor_value_info(node.output[-1], T.FLOAT, shape)],
        [nh.from_array(a, n) for n, a in arrays.items()],
    )
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 19)], ir_version=9)
    checker.check_model(m, full_check=True)
    return m


core = ov.Core()


def openvino(m, x):
    return core.compile_model(
        core.read_model(m.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )(x)[0]


def onnxruntime(m, x):
    return ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]


r = np.random.default_rng(0)

x = r.standard_normal((1, 1, 16, 16)).astype("f")


def resize(**a):
    return model(
        h.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", **a),
        x.shape,
        [1, 1, 8, 8],
        scales=np.array([1, 1, 0.5, 0.5], "f"),
    )


plain, smooth = resize(), resize(antialias=1)
right = ReferenceEvaluator(smooth).run(None, {"x": x})[0]
print(
    "antialias: onnxruntime off by",
    np.abs(onnxruntime(smooth, x) - right).max(),
    "openvino by",
    np.abs(openvino(smooth, x) - right).max(),
)
assert np.abs(onnxruntime(smooth, x) - right).max() < 1e-4
assert (
    np.array_equal(openvino(smooth, x), openvino(plain, x))
    and np.abs(openvino(smooth, x) - right).max() > 0.1
), "antialias is known now"

kept = model(
    h.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="nearest",
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
    ),
    x.shape,
    [1, 1, 7, 7],
    sizes=np.array([7, 8]),
)
print("not_larger: onnxruntime", onnxruntime(kept, x).shape, "openvino", openvino(kept, x).shape)
assert onnxruntime(kept, x).shape == (1, 1, 7, 7) and openvino(kept, x).shape == (1, 1, 7, 8), (
    "the policy is known now"
)

b, s, i, n = 3, 3, 2, 4  # as many sequences as steps: shapes show nothing
x = r.standard_normal((b, s, i)).astype("f")
arrays = dict(
    w=r.standard_normal((1, 3 * n, i)).astype("f"), r=r.standard_normal((1, 3 * n, n)).astype("f")
)


def gru(layout, shape):
    return model(
        h.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=n, layout=layout),
        x.shape,
        shape,
        **arrays,
    )


batch, steps = gru(1, [b, s, 1, n]), gru(0, [s, 1, b, n])
# By the specification: layout=1 is layout=0 with batch and sequence swapped before and after.
right = onnxruntime(steps, x.transpose(1, 0, 2).copy()).transpose(2, 0, 1, 3)
y = openvino(batch, x)
print(
    "GRU layout=1: reference off by",
    np.abs(ReferenceEvaluator(batch).run(None, {"x": x})[0] - right).max(),
    "openvino",
    y.shape,
)
wrong = y.shape != right.shape or np.abs(y - right).max() > 0.1
assert wrong, "layout=1 is known now"
END
