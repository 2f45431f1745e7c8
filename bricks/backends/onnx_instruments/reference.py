"""The reference workload: a fixed piece of work that is timed in every round.

Its latency tracks the machine state independently of the bricks under measurement: the speed of the
cores and, with several threads, the cost of communication between them. (A hypervisor moves virtual
processors between cores that share a cache and cores that don't; a whole model may then take twice
as long.) So it is a chain of small layers, each of which reads data that all threads have just
written. It must not know which measurements it is compared with.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

# Bumped whenever the workload changes: its latencies are compared across rounds.
REFERENCE = "r2-layers"

# The key of the chain of trivial nodes that is timed beside it: see ``measure/worker/sibling``.
SIBLING_CHAIN = "r2-chain"

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
