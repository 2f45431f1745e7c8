"""The reference workload: a fixed piece of work that is timed in every round.

How long it takes says how fast the machine is just then, whatever is being measured. It must not
know what it is compared with.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

# Bumped whenever the workload changes: its latencies are compared across rounds.
REFERENCE = "r1-matmul"

# About a millisecond on one core; operands and result stay in a core's own cache.
_ROWS, _INNER, _COLUMNS = 128, 512, 256


def reference() -> onnx.ModelProto:
    """A product of two matrices, the second of which is a weight: no runtime makes it cheaper."""
    weight = TensorProto(
        name="weight",
        data_type=TensorProto.FLOAT,
        dims=[_INNER, _COLUMNS],
        data_location=TensorProto.EXTERNAL,
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["in", "weight"], ["out"])],
        "reference",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [_ROWS, _INNER])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [_ROWS, _COLUMNS])],
        initializer=[weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
