"""Instruments of a device as ONNX models: reference workload, chain and eviction read.

:class:`~bricks.backends.instruments.Instruments` says what each is for. Must not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import onnx
from onnx import NodeProto, TensorProto, helper

from bricks.backends.instruments import ROW_BYTES

# The keys under which backends load the models. That of the reference workload is bumped whenever
# the workload changes: its latencies are compared across rounds.
REFERENCE, CHAIN, EVICTION_READ = "r2-layers", "r2-chain", "eviction read"

# Nodes of the chain that is timed along with the reference workload: some ten microseconds.
CHAIN_LENGTH = 32

# Activations are small enough for communication to be a large part of the latency, and the one
# weight stays in a core's own cache. On two cores that share no cache the workload takes twice as
# long (230 against 117 us on an EPYC); otherwise it hardly varies.
_LAYERS, _ROWS, _WIDTH = 16, 32, 128

_ROW_ELEMENTS = ROW_BYTES // 4


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
    shape = [_ROWS, _WIDTH]
    return float32_model("reference", nodes, {"in": shape}, {value: shape}, [weight])


def chain(length: int) -> onnx.ModelProto:
    """``length`` Relu nodes in a row, each on a single number."""
    names = ["in", *(f"v{i}" for i in range(1, length)), "out"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    return float32_model("probe", nodes, {"in": [1]}, {"out": [1]})


def eviction_read(size_bytes: int) -> onnx.ModelProto:
    """A read of ``size_bytes`` (rounded up to 4 KiB) with all threads, which writes few."""
    rows = max(1, -(-size_bytes // ROW_BYTES))
    node = helper.make_node("ReduceMax", ["in"], ["out"], axes=[1], keepdims=0)
    return float32_model("eviction_read", [node], {"in": [rows, _ROW_ELEMENTS]}, {"out": [rows]})


def float32_model(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    weights: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    """A model of opset 13, whose float32 inputs and outputs have these shapes."""
    stated_inputs, stated_outputs = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends.items()]
        for ends in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, name, stated_inputs, stated_outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
