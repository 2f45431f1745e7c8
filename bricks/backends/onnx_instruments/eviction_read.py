"""The eviction read as an ONNX model: see :meth:`.instruments.Instruments.eviction_read`.

It must not know what is measured.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from bricks.backends.instruments import ROW_BYTES

EVICTION_READ = "eviction read"

_ROW = ROW_BYTES // 4


def eviction_read(size_bytes: int) -> onnx.ModelProto:
    """A model that reads ``size_bytes`` (rounded up to 4 KiB) with all threads, and writes few."""
    rows = max(1, -(-size_bytes // ROW_BYTES))
    graph = helper.make_graph(
        [helper.make_node("ReduceMax", ["in"], ["out"], axes=[1], keepdims=0)],
        "eviction_read",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [rows, _ROW])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [rows])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
