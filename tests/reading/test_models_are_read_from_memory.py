"""A model in memory is read like its file, and no part is written to disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import branching_net, conv_net, embedding_net, mlp, save
from refusals import refused

from bricks.errors import ModelError
from bricks.reading.read import read_bytes, read_model


@pytest.mark.parametrize("make", [mlp, conv_net, branching_net, embedding_net])
def test_a_model_in_memory_is_that_of_its_file(tmp_path: Path, make) -> None:
    path = save(make(), tmp_path)
    read = read_bytes(path.read_bytes(), "net", batch=2)
    assert read.digest == read_model(path, batch=2).digest
    assert read.name == "net"


def test_weights_may_be_left_out(tmp_path: Path) -> None:
    whole = save(mlp(widths=(256, 512, 10)), tmp_path)
    graph = save(mlp(widths=(256, 512, 10)), tmp_path, "graph.onnx", external="weights")
    read = read_bytes(graph.read_bytes(), "graph")
    assert read.digest == read_model(whole).digest
    assert len(read.skeleton) < 4096


def test_scales_of_many_channels_count_as_in_the_file(tmp_path: Path) -> None:
    scales = np.linspace(0.01, 1, 1000, dtype=np.float32)
    tensors = [
        onnx.numpy_helper.from_array(np.ones((1000, 4), np.int8), "q"),
        onnx.numpy_helper.from_array(scales, "scale"),
        onnx.numpy_helper.from_array(np.zeros(1000, np.int8), "zero"),
    ]
    node = onnx.helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=0)
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1000, 4]) for name in "xy"
    ]
    graph = onnx.helper.make_graph([node, add], "g", ends[:1], ends[1:], tensors)
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path)
    assert read_bytes(path.read_bytes(), "q").digest == read_model(path).digest


@pytest.mark.parametrize("content", [b"", b"\x00", b"abc" * 100, b"\x12\x03abc"])
def test_what_is_no_model_is_refused_by_name(content: bytes) -> None:
    with refused(ModelError, "a_b"):
        read_bytes(content, "a/b")
