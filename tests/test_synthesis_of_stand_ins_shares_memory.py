from __future__ import annotations

import numpy as np
import onnx
from factories import constant, model, node, save, value

from bricks.backends.onnxruntime.optimized import structural_weights
from bricks.graph.read import read_model
from bricks.graph.synthesis import Pool


def quantised(dtype: str) -> onnx.ModelProto:
    """Two products with weights of 8 bits, and a table whose rows long integers choose."""
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["dw"]),
        node("DequantizeLinear", ["v", "scale"], ["dv"]),
        node("MatMul", ["x", "dw"], ["a"]),
        node("MatMul", ["a", "dv"], ["b"]),
        node("Gather", ["b", "rows"], ["y"]),
    ]
    weights = [
        constant("w", np.ones((64, 64)), dtype),
        constant("v", np.ones((64, 48)), dtype),
        constant("scale", 0.1, "FLOAT"),
        constant("rows", np.zeros(200_000), "INT64"),
    ]
    return model(nodes, [value("x", [3, 64])], [value("y", [200_000, 48])], weights)


def test_weights_of_eight_bits_share_memory_and_indices_keep_their_range(tmp_path):
    for dtype in ("INT8", "UINT8"):
        path = save(quantised(dtype), tmp_path)
        proto = onnx.load_from_string(read_model(path).skeleton)
        made = structural_weights(proto, Pool(0))
        assert made.keys() == {"w", "v", "rows"}
        assert np.shares_memory(made["w"], made["v"])
        assert made["w"].dtype == np.dtype(dtype.lower())
        assert made["w"].shape == (64, 64)
        assert not np.shares_memory(made["w"], made["rows"])
        assert made["rows"].min() >= 0
        assert made["rows"].max() <= 2


def test_bytes_that_choose_rows_are_no_mere_data(tmp_path):
    nodes = [node("Cast", ["bytes"], ["rows"], to=onnx.TensorProto.INT64)]
    nodes.append(node("Gather", ["x", "rows"], ["y"]))
    weights = [constant("bytes", np.zeros(5000), "UINT8")]
    proto = model(nodes, [value("x", [3, 4])], [value("y", [5000, 4])], weights)
    skeleton = onnx.load_from_string(read_model(save(proto, tmp_path)).skeleton)
    assert structural_weights(skeleton, Pool(0))["bytes"].max() <= 2
