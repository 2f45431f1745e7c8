"""The structure of a piece as a labelled graph, and the order in which its nodes are written.

Nodes, values and subgraphs become vertices; ports become labelled edges. Labels hold all facts that
count for identity except the wiring, so the canonical order of the vertices depends on these facts
and the wiring only.

Labels hold tensors and attributes in canonical form. ONNX can encode the same tensor in several
ways (raw or typed fields); one is picked here. ``identity`` defines what counts. Must not know keys
or canonical names.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import onnx
from onnx import numpy_helper

from bricks.decompose.canonical import Edge, SearchBudget, canonical_order
from bricks.errors import ModelError
from bricks.graph.payload import TENSOR_ATTRIBUTES, is_referenced, type_of
from bricks.graph.topology import default_domain, located_subgraphs, used_values
from bricks.operators.dependence import value_counts

# The path of a node: its position among the piece's nodes. In a subgraph: the path of the node that
# has the subgraph, the attribute, the subgraph's position in it, and the position in the subgraph.
Path = tuple[int | str, ...]
Scope = MutableMapping[str, int]


def ranks(
    nodes: Sequence[onnx.NodeProto],
    label: Callable[[str], bytes],
    budget: SearchBudget | None = None,
) -> dict[Path, int]:
    """Return a canonical rank by path, for the piece's nodes and the nodes of their subgraphs.

    ``label`` returns the identity of a value (kind, type, whether it leaves the piece, …).
    """
    structure = _Structure(label)
    structure.add_nodes(nodes, (), structure.outside, None)
    order = canonical_order(structure.labels, structure.edges, budget)
    position = {vertex: rank for rank, vertex in enumerate(order)}
    return {path: position[vertex] for path, vertex in structure.vertices.items()}


def schedule(nodes: Sequence[onnx.NodeProto], path: Path, rank: Mapping[Path, int]) -> list[int]:
    """Return the positions of ``nodes`` in topological order; of ready nodes the lowest rank first.

    Raises ``ModelError`` if there is no such order.
    """
    if len(nodes) == 1:
        return [0]
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    waiting = []
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        needs = {producer[n] for n in used_values(node) if n in producer}
        waiting.append(len(needs))
        for p in needs:
            readers[p].append(i)
    ready = [(rank[(*path, i)], i) for i, needs in enumerate(waiting) if not needs]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (rank[(*path, reader)], reader))
    if len(order) < len(nodes):
        raise ModelError("nodes wait for each other in a circle: the model is not valid")
    return order


class _Structure:
    """Vertices and edges of a piece, gathered in a walk over its nodes."""

    def __init__(self, label: Callable[[str], bytes]) -> None:
        self.labels: list[bytes] = []
        self.edges: list[Edge] = []
        self.vertices: dict[Path, int] = {}
        self.outside: Scope = {}
        self._label = label

    def add_nodes(
        self, nodes: Sequence[onnx.NodeProto], path: Path, scope: Scope, parent: int | None
    ) -> None:
        """Add the nodes of one scope; ``parent`` is the vertex of the subgraph they are in."""
        if parent is not None:
            scope.update(
                {name: self._vertex("value") for node in nodes for name in node.output if name}
            )
        for i, node in enumerate(nodes):
            attributes = [a.SerializeToString(deterministic=True) for a in plain_attributes(node)]
            ports = (len(node.input), len(node.output))
            vertex = self._vertex(
                "node", node.op_type, default_domain(node.domain), *ports, *attributes
            )
            for port, name in enumerate(node.input):
                if name:
                    self.edges.append((self._value(name, scope), vertex, f"input {port}"))
            for port, name in enumerate(node.output):
                if name:
                    self.edges.append((vertex, self._value(name, scope), f"output {port}"))
            for attribute, position, graph in located_subgraphs(node):
                subgraph = self._add_graph(graph, (*path, i, attribute, position), scope)
                self.edges.append((vertex, subgraph, f"graph {position} {attribute}"))
            self.vertices[(*path, i)] = vertex
            if parent is not None:
                self.edges.append((parent, vertex, "member"))

    def _add_graph(self, graph: onnx.GraphProto, path: Path, scope: Scope) -> int:
        inputs = [type_bytes(i) for i in graph.input]
        vertex = self._vertex("graph", len(inputs), *inputs, *map(type_bytes, graph.output))
        inner: Scope = ChainMap({}, scope)
        for port, formal in enumerate(graph.input):
            inner[formal.name] = self._vertex("formal")
            self.edges.append((vertex, inner[formal.name], f"formal {port}"))
        self.add_nodes(graph.node, path, inner, vertex)
        for port, output in enumerate(graph.output):
            self.edges.append((self._value(output.name, inner), vertex, f"result {port}"))
        return vertex

    def _value(self, name: str, scope: Scope) -> int:
        if name in scope:
            return scope[name]
        vertex = len(self.labels)
        self.labels.append(self._label(name))
        self.outside[name] = vertex
        return vertex

    def _vertex(self, *label: object) -> int:
        # repr distinguishes any two tuples of strings, numbers and bytes.
        self.labels.append(repr(label).encode())
        return len(self.labels) - 1


def type_bytes(value: onnx.ValueInfoProto) -> bytes:
    """The declared type of a subgraph's input or output, as bytes."""
    form: bytes = normal_type(value.type).SerializeToString(deterministic=True)
    return form


DTYPE_NUMBER = dict(onnx.TensorProto.DataType.items())

_TENSORS = TENSOR_ATTRIBUTES | {onnx.AttributeProto.TYPE_PROTO, onnx.AttributeProto.TYPE_PROTOS}
_GRAPHS = frozenset({onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS})


def constant(tensor: onnx.TensorProto, name: str = "") -> onnx.TensorProto:
    """Return a copy of the tensor with its values in canonical form, named ``name``.

    Raises ``ModelError`` if the tensor stores no values.
    """
    canonical = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
    if 0 in tensor.dims:
        canonical.raw_data = b""
        return canonical
    external = is_referenced(tensor)
    if tensor.raw_data and not external:
        canonical.raw_data = tensor.raw_data
        return canonical
    try:
        if external:
            raise ValueError("its data is external")
        if tensor.data_type == onnx.TensorProto.STRING:
            canonical.string_data.extend(tensor.string_data)
        else:
            canonical.raw_data = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    except (ValueError, TypeError) as exc:
        raise ModelError(
            f"initializer {tensor.name!r} holds no values, but they steer shapes or axes and so "
            "count for the identity of its brick: keep the values of small constants"
        ) from exc
    return canonical


def plain_attributes(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Return the node's attributes but subgraphs in canonical form, sorted by name."""
    attributes = sorted(node.attribute, key=lambda a: a.name)
    canonical = []
    for attribute in attributes:
        if attribute.type in _GRAPHS:
            continue
        if attribute.type in _TENSORS or attribute.doc_string:
            normalised = onnx.AttributeProto()
            normalised.CopyFrom(attribute)
            normalised.ClearField("doc_string")
            if normalised.HasField("t"):
                normalised.t.CopyFrom(_embedded(normalised.t))
            for tensor in normalised.tensors:
                tensor.CopyFrom(_embedded(tensor))
            sparse = [normalised.sparse_tensor] if normalised.HasField("sparse_tensor") else []
            for tensors in (*sparse, *normalised.sparse_tensors):
                tensors.values.CopyFrom(_embedded(tensors.values))
                # Positions are the structure of the work, and must stay valid: they count at any
                # size.
                tensors.indices.CopyFrom(constant(tensors.indices))
            if normalised.HasField("tp"):
                _strip(normalised.tp)
            for kind in normalised.type_protos:
                _strip(kind)
            attribute = normalised
        canonical.append(attribute)
    return canonical


def normal_type(kind: onnx.TypeProto) -> onnx.TypeProto:
    """Return a copy of the type without names of dimensions and denotations."""
    form = onnx.TypeProto()
    form.CopyFrom(kind)
    _strip(form)
    return form


def _embedded(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return the canonical form of a tensor in an attribute, with zeros if it stores no values.

    Unlike a weight, an attribute cannot be filled in later, so it needs some values now.
    """
    kind = type_of(tensor)
    if not is_referenced(tensor) or value_counts(kind, steering=False):
        return constant(tensor)
    zeros = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    zeros.raw_data = bytes(kind.size_bytes)
    return zeros


def _strip(kind: onnx.TypeProto) -> None:
    """Remove names of dimensions and denotations, in place."""
    kind.ClearField("denotation")
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        for dim in getattr(kind, which).shape.dim:
            dim.ClearField("denotation")
            dim.ClearField("dim_param")
    elif which in ("sequence_type", "optional_type"):
        _strip(getattr(kind, which).elem_type)
    elif which == "map_type":
        _strip(kind.map_type.value_type)
