"""A chain of trivial nodes: what a call of the runtime takes, and what each node in it.

Must not know what is measured.
"""

from __future__ import annotations

from itertools import pairwise

import onnx
from onnx import TensorProto, helper

CHAIN = "r2-chain"

# Nodes of the chain that is timed along with the reference workload: some ten microseconds.
CHAIN_LENGTH = 32


def chain(length: int) -> onnx.ModelProto:
    """A model of ``length`` nodes in a row, each on a single number."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("in", "out")]
    names = ["in", *(f"v{i}" for i in range(1, length)), "out"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    graph = helper.make_graph(nodes, "probe", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
