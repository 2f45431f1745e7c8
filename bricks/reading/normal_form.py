"""Normalise a model: constants are initializers, nodes are sorted, names are unique.

Later stages rely on this form, and on a producer for every input. Must not know the source of a
model.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.errors import ModelError
from bricks.graph.payload import all_tensors, check_size
from bricks.graph.subgraphs import hoist
from bricks.graph.topology import (
    all_nodes,
    check_names,
    default_domain,
    initializer_names,
    label,
    make_names_unique,
    sort_nodes,
    subgraphs,
    used_values,
)
from bricks.reading.sparse import make_dense

_STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})
# Optimisers wrote these operators into the standard domain long before it defined them.
_CONVENTIONAL = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})


def normalise(proto: onnx.ModelProto, path: Path, folder: Path) -> None:
    """Normalise ``proto`` in place; raises :class:`ModelError` if it is invalid.

    Messages name ``path``; ``folder`` has the data of sparse initializers.
    """
    graph, file = proto.graph, path.name
    if not set(map(type, _names(proto))) <= {str}:
        raise ModelError(f"{path} is not an ONNX model: a name in it is no text")
    for node in all_nodes(graph):
        if not default_domain(node.domain):
            node.ClearField("domain")
    make_names_unique(graph)
    _check_operators(proto, file)
    make_dense(graph, folder, file)
    _constants_to_initializers(graph, file)
    _drop_initialized_inputs(proto)
    try:
        hoist(graph)
    except ModelError as exc:
        raise ModelError(f"{file}: {exc}") from exc
    check_names(graph, file)
    sort_nodes(graph, file)
    _drop_unread_initializers(graph)
    for tensor in all_tensors(graph):
        check_size(tensor)


def _names(proto: onnx.ModelProto) -> list[object]:
    """Return every name in ``proto``; protobuf returns names that are not UTF-8 as bytes."""
    texts: list[object] = []
    for node in all_nodes(proto.graph):
        texts += node.input
        texts += node.output
        texts += (node.name, node.op_type, node.domain)
        texts += [attribute.name for attribute in node.attribute]
        for body in subgraphs(node):
            texts += [value.name for value in (*body.input, *body.output)]
    for value in (*proto.graph.input, *proto.graph.output):
        texts.append(value.name)
        texts += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    for tensor in all_tensors(proto.graph):
        texts.append(tensor.name)
        for entry in tensor.external_data:
            texts += (entry.key, entry.value)
    return texts + [entry.domain for entry in proto.opset_import]


def _check_operators(proto: onnx.ModelProto, file: str) -> None:
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        imported = default_domain(entry.domain)
        opsets[imported] = max(entry.version, opsets.get(imported, 0))
    if proto.ir_version < 3:
        opsets.setdefault("", 1)  # the field came with IR version 3
    checked: set[tuple[str, str]] = set()
    for node in all_nodes(proto.graph):
        kind = (node.domain, node.op_type)
        if kind in checked:
            continue
        checked.add(kind)
        domain = node.domain or "ai.onnx"
        if node.domain not in opsets:
            raise ModelError(
                f"{file}: node {label(node)} is of domain {domain}, which the model does not import"
            )
        if node.domain not in _STANDARD_DOMAINS or (not node.domain and kind[1] in _CONVENTIONAL):
            continue
        version = opsets[node.domain]
        try:
            onnx.defs.get_schema(node.op_type, max(0, min(version, 2**31 - 1)), node.domain)
        except onnx.defs.SchemaError as exc:
            raise ModelError(
                f"{file}: node {label(node)}: domain {domain}, opset {version},"
                f" has no operator {node.op_type}"
            ) from exc


def _constants_to_initializers(graph: onnx.GraphProto, file: str) -> None:
    for node in graph.node:
        for subgraph in subgraphs(node):
            _constants_to_initializers(subgraph, file)
    kept = []
    for node in graph.node:
        tensor = _constant(node, file) if node.op_type == "Constant" and not node.domain else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
    if len(kept) < len(graph.node):
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(nodes)


def _constant(node: onnx.NodeProto, file: str) -> onnx.TensorProto | None:
    """Return the value of a Constant node; None for strings and sparse tensors."""
    if len(node.output) != 1 or not node.output[0] or len(node.attribute) != 1:
        raise ModelError(f"{file}: node {label(node)} needs one output and one attribute")
    attribute = node.attribute[0]
    values: dict[str, tuple[object, type[np.generic]]] = {
        "value_int": (attribute.i, np.int64),
        "value_ints": (list(attribute.ints), np.int64),
        "value_float": (attribute.f, np.float32),
        "value_floats": (list(attribute.floats), np.float32),
    }
    if attribute.name == "value" and attribute.HasField("t"):
        copy = onnx.TensorProto()
        copy.CopyFrom(attribute.t)
        return None if copy.data_type == onnx.TensorProto.STRING else copy
    if attribute.name in values:
        value, dtype = values[attribute.name]
        return numpy_helper.from_array(np.array(value, dtype))
    return None


def _drop_initialized_inputs(proto: onnx.ModelProto) -> None:
    """Drop inputs with a stored value: they are constants (every weight before IR version 4)."""
    names = set(initializer_names(proto.graph))
    kept = [value for value in proto.graph.input if value.name not in names]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)
    proto.ir_version = max(proto.ir_version, 4)


def _drop_unread_initializers(graph: onnx.GraphProto) -> None:
    """Drop constants that no node reads: they cost nothing, and a runtime may reject them."""
    read = {name for node in graph.node for name in used_values(node)}
    read.update(value.name for value in graph.output)
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(copies)


def drop_shapes(graph: onnx.GraphProto, *, changed: bool, inner: bool = False) -> None:
    """Drop stored shapes, except of inputs: inferred shapes could contradict them.

    ``changed``: the batch size is not the file's, so inputs of ``inner`` graphs lose theirs too.
    """
    del graph.value_info[:]
    values = [*graph.output]
    if inner and changed:
        values += graph.input
    for value in values:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for subgraph in subgraphs(node):
            drop_shapes(subgraph, changed=changed, inner=True)
