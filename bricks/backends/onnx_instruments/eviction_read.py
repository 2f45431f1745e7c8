"""The eviction read: reads memory in place of the weights that a walk omits.

A walk over a model's bricks runs few of its occurrences, and so reads few of its weights. In the
model, the other weights evict these from the caches before they are read again. So the eviction
read reads as many bytes as the walk omits, before each pass. It must not know what is measured.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

EVICTION_READ = "eviction read"

_ROW = 1024
ROW_BYTES = 4 * _ROW


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
