"""The reference workload: a fixed piece of work that is timed in every round.

How long it takes says how the machine is just then, whatever is being measured: how fast its cores
are, and, with several threads, how far apart. (Virtual processors move between cores that share a
cache and cores that don't, and a whole model may take twice as long then.) So it is a chain of
small layers, each of which reads what all threads have just written. It must not know what it is
compared with.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

# Bumped whenever the workload changes: its latencies are compared across rounds.
REFERENCE = "r2-layers"

# Activations are so small that passing them on is a large part, and the one weight stays in a
# core's own cache: on two cores that share no cache it takes twice as long (230 against 117 us on
# an EPYC), and hardly varies otherwise.
_LAYERS, _ROWS, _WIDTH = 16, 32, 128


def reference() -> onnx.ModelProto:
    """Matrix products and activations in turn, on one weight without values."""
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
