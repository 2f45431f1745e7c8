"""Reference kernels and the eviction read, as ONNX models that every backend loads.

A reference kernel (see :mod:`bricks.system.host_conditions`) is the same work in every release,
since caches hold its latency. Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import onnx
from onnx import NodeProto, TensorProto, helper

from bricks.backends.instruments import ROW_BYTES
from bricks.system.host_conditions import CALLS, CONVOLUTION, EXCHANGE, PRODUCT, STREAM

# The keys under which backends load the models.
KERNEL, EVICTION_READ = "k1-{}", "eviction read"

_ROW_ELEMENTS = ROW_BYTES // 4


def reference_kernels() -> dict[str, onnx.ModelProto]:
    """The model of each reference kernel, by its name, in the order in which they are timed.

    The kernel of exchanging threads has activations so small that communication is a large part of
    its latency: on two cores that share no cache, it takes twice as long.
    """
    channels, size = CONVOLUTION
    rows, terms, columns = PRODUCT
    layers, batch, width = EXCHANGE
    pixels, product = [1, channels, size, size], [rows, columns]
    of_taps = ["in", "weight"]
    convolved = helper.make_node("Conv", of_taps, ["out"], pads=[1] * 4, kernel_shape=[3, 3])
    multiplied = helper.make_node("MatMul", ["in", "weight"], ["out"])
    added = helper.make_node("Add", ["in", "in"], ["out"])
    return {
        "convolution": float32_model(
            "convolution", [convolved], {"in": pixels}, {"out": pixels},
            [_weight(channels, channels, 3, 3)],
        ),
        "product": float32_model(
            "product", [multiplied], {"in": [rows, terms]}, {"out": product},
            [_weight(terms, columns)],
        ),
        "stream": float32_model("stream", [added], {"in": [*STREAM]}, {"out": [*STREAM]}),
        "calls": chain(CALLS),
        "exchange": _layers(layers, [batch, width]),
    }  # fmt: skip


def _layers(count: int, shape: list[int]) -> onnx.ModelProto:
    """Alternating matrix products and activations, on one weight."""
    nodes, value = [], "in"
    for i in range(count):
        nodes.append(helper.make_node("MatMul", [value, "weight"], [f"product{i}"]))
        nodes.append(helper.make_node("Relu", [f"product{i}"], [f"layer{i}"]))
        value = f"layer{i}"
    weight = _weight(shape[1], shape[1])
    return float32_model("reference", nodes, {"in": shape}, {value: shape}, [weight])


def _weight(*shape: int) -> TensorProto:
    """A weight without values: backends fill it."""
    return TensorProto(
        name="weight",
        data_type=TensorProto.FLOAT,
        dims=shape,
        data_location=TensorProto.EXTERNAL,
    )


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
