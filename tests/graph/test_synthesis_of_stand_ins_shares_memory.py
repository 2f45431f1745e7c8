from __future__ import annotations

import numpy as np
import onnx
from factories import constant, model, node, save, value
from onnx import numpy_helper

from bricks.backends.onnxruntime.synthetic_data import SurrogateWeights
from bricks.graph.payload import is_referenced
from bricks.graph.synthesis import Pool
from bricks.reading.read import read_model

BEGINNING = 1 << 20  # bytes of ordinary numbers, however small the weights


def quantised(dtype: str) -> onnx.ModelProto:
    """Two products with INT8 weights, and a table whose rows INT64 indices choose."""
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


def arrays(proto: onnx.ModelProto) -> tuple[dict[str, np.ndarray], int]:
    """Surrogate weights of a model, by name, and the bytes that they take."""
    with SurrogateWeights(Pool(0)).of(proto) as (referring, folder):
        made = {
            tensor.name: numpy_helper.to_array(tensor, str(folder))
            for tensor in referring.graph.initializer
            if is_referenced(tensor)
        }
        return made, sum(path.stat().st_size for path in folder.iterdir())


def test_weights_of_eight_bits_share_memory_and_indices_keep_their_range(tmp_path):
    for dtype in ("INT8", "UINT8"):
        path = save(quantised(dtype), tmp_path)
        proto = onnx.load_from_string(read_model(path).skeleton)
        made, size_bytes = arrays(proto)
        assert made.keys() == {"w", "v", "rows"}
        assert made["w"].tobytes().startswith(made["v"].tobytes())
        assert size_bytes < BEGINNING + made["rows"].nbytes + 4096
        assert made["w"].dtype == np.dtype(dtype.lower())
        assert made["w"].shape == (64, 64)
        assert made["rows"].min() >= 0
        assert made["rows"].max() <= 2


def test_bytes_that_choose_rows_are_no_mere_data(tmp_path):
    nodes = [node("Cast", ["bytes"], ["rows"], to=onnx.TensorProto.INT64)]
    nodes.append(node("Gather", ["x", "rows"], ["y"]))
    weights = [constant("bytes", np.zeros(5000), "UINT8")]
    proto = model(nodes, [value("x", [3, 4])], [value("y", [5000, 4])], weights)
    skeleton = onnx.load_from_string(read_model(save(proto, tmp_path)).skeleton)
    assert arrays(skeleton)[0]["bytes"].max() <= 2


def test_large_weights_are_holes_but_for_their_beginning(tmp_path):
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    weights = [constant("w", np.ones((2048, 2048)), "FLOAT")]
    proto = model(nodes, [value("x", [3, 2048])], [value("y", [3, 2048])], weights)
    skeleton = onnx.load_from_string(read_model(save(proto, tmp_path)).skeleton)
    made, size_bytes = arrays(skeleton)
    flat = made["w"].reshape(-1)
    assert size_bytes == flat.nbytes
    assert np.isfinite(flat).all()
    assert (flat[: 1 << 18] != 0).all()
    assert len(np.unique(flat[: 1 << 18])) > 1000
    assert not flat[1 << 18 :].any()


def test_what_stands_in_grows_with_the_largest_and_is_gone_in_the_end(tmp_path):
    surrogates = SurrogateWeights(Pool(0))
    for rows in (64, 1024, 128):
        nodes = [node("MatMul", ["x", "w"], ["y"])]
        weights = [constant("w", np.ones((rows, 1024)), "FLOAT")]
        proto = model(nodes, [value("x", [3, rows])], [value("y", [3, 1024])], weights)
        skeleton = onnx.load_from_string(read_model(save(proto, tmp_path)).skeleton)
        with surrogates.of(skeleton) as (referring, folder):
            w = numpy_helper.to_array(referring.graph.initializer[0], str(folder))
            assert w.shape == (rows, 1024)
            assert w[0].all()
        assert not folder.exists()
    place = folder.parent
    assert [path.stat().st_size for path in place.iterdir()] == [1024 * 1024 * 4]
    del surrogates
    assert not place.exists()
