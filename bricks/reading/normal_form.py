"""Normalise a model: no local functions, constants are initializers, nodes sorted, names unique.

Later stages rely on this form, and on a producer for every input. Sparse initializers become dense
ones, as every runtime makes them when it loads. Twenty functions that call the next one twice
inline to a million nodes, so upper bounds of the inlined model are computed first: nodes, bytes,
and the nesting depth of graphs. Must not know the source of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from bricks.errors import ModelError, first_line
from bricks.graph.payload import (
    all_tensors,
    check_size,
    is_referenced,
    numpy_dtype,
    read_inline,
    read_referenced,
    reference,
    storage_shape,
    store_inline,
    type_of,
)
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
from bricks.graph.types import ELEMENT_BITS, TensorType

_STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})
# Optimisers wrote these operators into the standard domain long before it defined them.
_CONVENTIONAL = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})

# Limit of a dense tensor in memory: a few numbers may declare a huge matrix.
MAX_DENSE_BYTES = 1 << 26


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
    names = set(initializer_names(proto.graph))
    kept = [value for value in proto.graph.input if value.name not in names]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)
    proto.ir_version = max(proto.ir_version, 4)
    try:
        hoist(graph)
    except ModelError as exc:
        raise ModelError(f"{file}: {exc}") from exc
    check_names(graph, file)
    sort_nodes(graph, file)
    # Constants that no node reads cost nothing, and a runtime may reject them.
    read = {name for node in graph.node for name in used_values(node)}
    read.update(value.name for value in graph.output)
    used = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(used) < len(graph.initializer):
        tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in used]
        del graph.initializer[:]
        graph.initializer.extend(tensors)
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


def make_dense(graph: onnx.GraphProto, folder: Path, file: str) -> None:
    """Replace the sparse initializers of ``graph`` and its subgraphs by dense ones.

    Raises :class:`ModelError` for invalid ones, and for dense tensors over 64 MiB.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, folder, file))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for subgraph in subgraphs(node):
            make_dense(subgraph, folder, file)


def _dense(sparse: onnx.SparseTensorProto, folder: Path, file: str) -> onnx.TensorProto:
    name, dims = sparse.values.name, tuple(sparse.dims)
    subject = f"{file}: sparse initializer '{name}'"
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{subject} has negative dimensions")
    kind = TensorType(type_of(sparse.values).dtype, dims)
    if ELEMENT_BITS.get(kind.dtype, 0) < 8:
        raise ModelError(f"{subject} holds {kind.dtype}: not supported")
    if kind.size_bytes > MAX_DENSE_BYTES:
        raise ModelError(
            f"{subject} takes {kind.size_bytes} bytes when dense: make it dense in the file"
        )
    values = _read(sparse.values, folder, file).reshape(-1)
    indices = _read(sparse.indices, folder, file)
    dense = np.zeros(storage_shape(kind), numpy_dtype(kind.dtype))
    try:
        if indices.ndim == 2:
            dense[tuple(indices.T)] = values
        else:
            dense.reshape(-1)[indices] = values
    except (IndexError, ValueError) as exc:
        raise ModelError(f"{subject} has positions outside its shape: {list(dims)}") from exc
    tensor = onnx.TensorProto(name=name, data_type=sparse.values.data_type, dims=dims)
    store_inline(tensor, dense)
    return tensor


def _read(tensor: onnx.TensorProto, folder: Path, file: str) -> np.ndarray:
    if not is_referenced(tensor):
        return read_inline(tensor)
    values = read_referenced(folder, tensor)
    if values is None:
        location = reference(tensor).location
        raise ModelError(f"{file}: the data file '{location}' of '{tensor.name}' is missing")
    return values


# Limits of inlining: MAX_NODES nodes plus MAX_TIMES as many as the file holds, and
# MAX_INLINED_BYTES bytes.
MAX_NODES, MAX_INLINED_BYTES, MAX_TIMES = 10_000, 64 << 20, 100
# Nesting depths of functions and of graphs: real models have a few; protobuf reads 33 graphs.
MAX_CALLS, MAX_GRAPHS = 60, 30

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Size:
    """The inlined size of a call: nodes, bytes, and nesting depths of calls and of graphs."""

    nodes: int
    size_bytes: int
    calls: int
    graphs: int


def inlined(proto: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """Return ``proto`` with calls of its local functions inlined.

    Raises :class:`ModelError` for functions that call themselves, and for functions that would make
    the model much larger than its file.
    """
    if not proto.functions:
        return proto
    functions = _Functions(proto, file)
    size = functions.size_of(proto.graph.node)
    file_nodes = sum(1 for _ in _nested_nodes(proto.graph.node))
    file_nodes += sum(1 for function in proto.functions for _ in _nested_nodes(function.node))
    if size.graphs > MAX_GRAPHS or size.calls > MAX_CALLS:
        raise ModelError(f"{file}: its functions are nested too deep: inline them before")
    if size.nodes > MAX_NODES + MAX_TIMES * file_nodes or size.size_bytes > MAX_INLINED_BYTES:
        raise ModelError(
            f"{file}: inlining its functions would make {size.nodes} nodes"
            f" ({size.size_bytes >> 20} MiB) of {file_nodes}: refused; inline them before"
        )
    try:
        return onnx.inliner.inline_local_functions(proto)
    # onnx's C++ raises various exceptions here, from RuntimeError to its own classes.
    except Exception as exc:
        raise ModelError(f"{file}: its functions cannot be inlined: {first_line(exc)}") from exc


class _Functions:
    """The local functions of a model, and the inlined sizes of their calls."""

    def __init__(self, proto: onnx.ModelProto, file: str) -> None:
        self._file = file
        self._bodies: dict[Key, onnx.FunctionProto] = {}
        for function in proto.functions:
            key = _key(function.domain, function.name, function.overload)
            if key in self._bodies:
                raise ModelError(f"{file}: function {function.name} is defined more than once")
            self._bodies[key] = function
        nodes = [node for node, _ in _nested_nodes(proto.graph.node)]
        nodes += [node for body in proto.functions for node, _ in _nested_nodes(body.node)]
        # Names and attributes of a call replace the names and attributes in the function.
        names = (name for node in nodes for name in (*node.input, *node.output))
        self._name_bytes = max(map(len, names), default=0)
        passed = [self._passed_bytes(node) for node in nodes if self._callee(node) in self._bodies]
        passed += [sum(a.ByteSize() for a in body.attribute_proto) for body in proto.functions]
        self._attribute_bytes = max(passed, default=0)
        self._known: dict[Key, _Size] = {}
        self._active: dict[Key, None] = {}

    def size_of(self, body: Iterable[onnx.NodeProto]) -> _Size:
        """Return an upper bound of the inlined size of the calls in ``body``."""
        nodes = size_bytes = calls = graphs = 0
        for node, depth in _nested_nodes(body):
            graphs = max(graphs, depth)
            key = self._callee(node)
            if key in self._bodies:
                size = self._call(key)
                nodes += size.nodes
                size_bytes += size.size_bytes
                calls = max(calls, size.calls)
                graphs = max(graphs, depth + size.graphs)
        return _Size(nodes, size_bytes, calls, graphs)

    def _call(self, key: Key) -> _Size:
        if key in self._known:
            return self._known[key]
        if key in self._active:
            raise ModelError(f"{self._file}: function {key[1]} calls itself: refused")
        if len(self._active) > MAX_CALLS:
            raise ModelError(f"{self._file}: its functions are nested too deep: inline them before")
        self._active[key] = None
        function = self._bodies[key]
        size = self.size_of(function.node)
        ports = references = own = 0
        for node, _ in _nested_nodes(function.node):
            own += 1
            ports += len(node.input) + len(node.output)
            references += sum(1 for attribute in node.attribute if attribute.ref_attr_name)
        own_bytes = function.ByteSize() + ports * self._name_bytes
        own_bytes += references * self._attribute_bytes
        del self._active[key]
        self._known[key] = _Size(
            size.nodes + own, size.size_bytes + own_bytes, size.calls + 1, size.graphs
        )
        return self._known[key]

    def _passed_bytes(self, node: onnx.NodeProto) -> int:
        """Return the bytes of the attributes that a call passes; raises if they contain a graph.

        A graph that functions pass on twice, nested in a graph, grows exponentially.
        """
        if any(True for _ in subgraphs(node)):
            raise ModelError(
                f"{self._file}: node {label(node)} passes a graph to a function: not supported;"
                " inline the function before"
            )
        return sum(attribute.ByteSize() for attribute in node.attribute)

    def _callee(self, node: onnx.NodeProto) -> Key:
        return _key(node.domain, node.op_type, node.overload)


def _key(domain: str, name: str, overload: str) -> Key:
    return default_domain(domain), name, overload


def _nested_nodes(
    nodes: Iterable[onnx.NodeProto], depth: int = 0
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield every node, also in subgraphs, with its nesting depth in graphs."""
    for node in nodes:
        yield node, depth
        for graph in subgraphs(node):
            yield from _nested_nodes(graph.node, depth + 1)
