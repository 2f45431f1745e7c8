"""Small ONNX models for tests: each factory returns a ``ModelProto``, :func:`save` writes one.

All take ``prefix`` (of every name in the graph), ``seed`` (of the weights), ``opset`` and, where it
makes sense, ``dtype``: so the same network can be had under other names or with other weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None]
OPSET = 17
IR_VERSION = 8


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
) -> onnx.NodeProto:
    """A node; its name is that of its first output."""
    name = attributes.pop("name", f"{op}_{outputs[0]}" if outputs else op)
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attributes)


def value(name: str, shape: Dims | None, dtype: str = "FLOAT") -> onnx.ValueInfoProto:
    """A graph input or output; ``None`` for ``shape`` leaves even the rank open."""
    return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape)


def constant(name: str, values: object, dtype: str = "INT64") -> onnx.TensorProto:
    """An initializer, stored raw."""
    array = np.asarray(values, helper.tensor_dtype_to_np_dtype(getattr(TensorProto, dtype)))
    return numpy_helper.from_array(array, name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of one graph; ``domains`` are imported in version 1 besides the standard one."""
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=ir_version, functions=list(functions)
    )


class _Weights:
    def __init__(self, seed: int, dtype: str) -> None:
        self._rng = np.random.default_rng(seed)
        self._dtype = dtype
        self.tensors: list[onnx.TensorProto] = []

    def add(self, name: str, *shape: int, positive: bool = False) -> str:
        values = self._rng.standard_normal(shape) / np.sqrt(max(1, math.prod(shape[1:])))
        self.tensors.append(
            constant(name, np.abs(values) + 0.5 if positive else values, self._dtype)
        )
        return name


def conv_net(
    *,
    batch: int | str = 1,
    channels: int = 8,
    blocks: int = 3,
    size: int = 16,
    classes: int = 10,
    dtype: str = "FLOAT",
    prefix: str = "",
    seed: int = 0,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Image in, class scores out: a convolution, ``blocks`` equal ones, pooling, a dense layer."""
    w = _Weights(seed, dtype)
    p = prefix
    nodes, at = [], f"{p}data"
    for i in range(blocks + 1):
        cin = 3 if i == 0 else channels
        conv = [
            at,
            w.add(f"{p}conv{i}.w", channels, cin, 3, 3),
            w.add(f"{p}conv{i}.b", channels),
        ]
        nodes.append(node("Conv", conv, [f"{p}c{i}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        norm = [w.add(f"{p}bn{i}.{k}", channels, positive=True) for k in ("s", "b", "m", "v")]
        nodes.append(node("BatchNormalization", [f"{p}c{i}", *norm], [f"{p}n{i}"]))
        nodes.append(node("Relu", [f"{p}n{i}"], [f"{p}r{i}"]))
        at = f"{p}r{i}"
    nodes.append(node("GlobalAveragePool", [at], [f"{p}pool"]))
    nodes.append(node("Flatten", [f"{p}pool"], [f"{p}flat"]))
    dense = [f"{p}flat", w.add(f"{p}fc.w", classes, channels), w.add(f"{p}fc.b", classes)]
    nodes.append(node("Gemm", dense, [f"{p}scores"], transB=1))
    inputs = [value(f"{p}data", [batch, 3, size, size], dtype)]
    outputs = [value(f"{p}scores", [batch, classes], dtype)]
    return model(nodes, inputs, outputs, w.tensors, opset=opset)


def mlp(
    *,
    batch: int | str = 1,
    widths: Sequence[int] = (32, 64, 64, 10),
    dtype: str = "FLOAT",
    prefix: str = "",
    seed: int = 0,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Dense layers of the given ``widths`` (first: the input's) with Relu between them."""
    w = _Weights(seed, dtype)
    p = prefix
    nodes, at = [], f"{p}x"
    layers = len(widths) - 1
    for i, (before, after) in enumerate(pairwise(widths)):
        dense = [at, w.add(f"{p}w{i}", before, after), w.add(f"{p}b{i}", after)]
        out = f"{p}y" if i == layers - 1 else f"{p}h{i}"
        nodes.append(node("Gemm", dense, [out]))
        at = out
        if i < layers - 1:
            nodes.append(node("Relu", [at], [f"{p}a{i}"]))
            at = f"{p}a{i}"
    inputs = [value(f"{p}x", [batch, widths[0]], dtype)]
    return model(
        nodes, inputs, [value(f"{p}y", [batch, widths[-1]], dtype)], w.tensors, opset=opset
    )


def embedding_net(
    *,
    batch: int | str = 1,
    tokens: int | str = 8,
    vocabulary: int = 100,
    width: int = 16,
    dtype: str = "FLOAT",
    prefix: str = "",
    seed: int = 0,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Token ids and an attention mask in, masked and projected embeddings out."""
    w = _Weights(seed, dtype)
    p = prefix
    element = getattr(TensorProto, dtype)
    table, dense = w.add(f"{p}table", vocabulary, width), w.add(f"{p}dense", width, width)
    w.tensors.append(constant(f"{p}axes", [2]))
    nodes = [
        node("Gather", [table, f"{p}ids"], [f"{p}embedded"]),
        node("Unsqueeze", [f"{p}mask", f"{p}axes"], [f"{p}wide"]),
        node("Cast", [f"{p}wide"], [f"{p}valid"], to=element),
        node("Mul", [f"{p}embedded", f"{p}valid"], [f"{p}masked"]),
        node("MatMul", [f"{p}masked", dense], [f"{p}hidden"]),
    ]
    shape = [batch, tokens]
    inputs = [value(f"{p}ids", shape, "INT64"), value(f"{p}mask", shape, "INT64")]
    return model(
        nodes, inputs, [value(f"{p}hidden", [*shape, width], dtype)], w.tensors, opset=opset
    )


def branching_net(
    *,
    batch: int | str = 1,
    channels: int = 8,
    size: int = 8,
    branches: int = 3,
    dtype: str = "FLOAT",
    prefix: str = "",
    seed: int = 0,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Equal branches of a convolution from one input, added up; two outputs (sum, its mean)."""
    w = _Weights(seed, dtype)
    p = prefix
    nodes = []
    for i in range(branches):
        conv = [f"{p}x", w.add(f"{p}w{i}", channels, channels, 3, 3)]
        nodes.append(node("Conv", conv, [f"{p}c{i}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", [f"{p}c{i}"], [f"{p}r{i}"]))
    nodes.append(node("Sum", [f"{p}r{i}" for i in range(branches)], [f"{p}sum"]))
    nodes.append(node("GlobalAveragePool", [f"{p}sum"], [f"{p}mean"]))
    shape = [batch, channels, size, size]
    outputs = [
        value(f"{p}sum", shape, dtype),
        value(f"{p}mean", [batch, channels, 1, 1], dtype),
    ]
    return model(nodes, [value(f"{p}x", shape, dtype)], outputs, w.tensors, opset=opset)


def branches(width: int = 64) -> onnx.ModelProto:
    """A diamond of products that are worth running apart: 2 · 512 · 1024² operations each."""
    rows, wide = 8 * width, 16 * width
    weights = [constant(f"w{i}", np.eye(wide) * (i + 1) / 4, "FLOAT") for i in range(4)]
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]),
        node("MatMul", ["a", "w1"], ["b0"]),
        node("Sigmoid", ["b0"], ["b"]),
        node("MatMul", ["a", "w2"], ["c0"]),
        node("Tanh", ["c0"], ["c"]),
        node("Concat", ["b", "c"], ["y"], axis=1),
    ]
    return model(nodes, [value("x", [rows, wide])], [value("y", [rows, 2 * wide])], weights)


def save(
    proto: onnx.ModelProto,
    folder: Path,
    name: str = "model.onnx",
    *,
    external: str | None = None,
    threshold: int = 0,
) -> Path:
    """Write ``proto`` to ``folder``; with ``external`` the weights go to the file of that name.

    ``threshold``: payloads of fewer bytes stay in the model file.
    """
    path = folder / name
    if external is None:
        path.write_bytes(proto.SerializeToString())
    else:
        copy = onnx.ModelProto.FromString(proto.SerializeToString())
        onnx.save_model(
            copy,
            path,
            save_as_external_data=True,
            location=external,
            size_threshold=threshold,
            convert_attribute=False,
        )
    return path


def one_node(
    op: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    order: Sequence[str] | None = None,
    domain: str = "",
    opset: int = OPSET,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node that takes the inputs, then the initializers (or what ``order`` says)."""
    names = order or [v.name for v in inputs] + [t.name for t in initializers]
    single = node(op, names, [v.name for v in outputs], domain=domain, **attributes)
    return model(
        [single], inputs, outputs, initializers, opset=opset, domains=[domain] if domain else []
    )
