"""The reference workload as an ONNX model: see :meth:`.instruments.Instruments.reference`.

It must not know which measurements it is compared with.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

# Bumped whenever the workload changes: its latencies are compared across rounds.
REFERENCE = "r2-layers"

# Activations are small enough for communication to be a large part of the latency, and the one
# weight stays in a core's own cache. On two cores that share no cache the workload takes twice as
# long (230 against 117 us on an EPYC); otherwise it hardly varies.
_LAYERS, _ROWS, _WIDTH = 16, 32, 128


def reference() -> onnx.ModelProto:
    """Alternating matrix products and activations, on one weight without values."""
    weight = TensorProto(
        name="weight",
        data_type=TensorProto.FLOAT,
        dims=[_WIDTH, _WIDTH],
        data_location=TensorProto.EXTERNAL,
    )
    nodes, value = [], "in"
    for i in range(_LAYERS):
        nodes.append(helper.make_node("MatMul", [value, "weight"], [f"product{i}"]))
        nodes.append(helper.make_node("Relu", [f"product{i}"], [f"layer{i}"]))
        value = f"layer{i}"
    graph = helper.make_graph(
        nodes,
        "reference",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [_ROWS, _WIDTH])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [_ROWS, _WIDTH])],
        initializer=[weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
