"""Values that count: those that decide the latency of a node, and steering values.

Backends know dependences of a single runtime (a loop of its own that branches on signs).

Steering values are constants whose contents are loaded and count for identity.

A weight may be any number, but a shape, an axis or an exponent may not. Reading uses this module to
decide which values to load from disk; the digest of models and the identity of bricks use it to
decide which values count. Must not know how values are read, observed or drawn, nor what a brick
is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bricks.graph.form import DOMAIN
from bricks.graph.program import call_of, is_call, leaves
from bricks.graph.sketch import DISTINCT, ORDER, QUANTILES, SELECTED, Sketch
from bricks.graph.subgraphs import conditional_loops
from bricks.graph.topology import inner_nodes, used_values
from bricks.graph.types import ContainerType, TensorType, ValueType
from bricks.graph.view import graph_of
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph
    from bricks.operators.operator import Dependence, Operator

# Tables of fewer bytes stay in the caches.
_LARGE_TABLE_BYTES: Final = 1 << 20
_MASKS: Final = ("BOOL", "UINT8")
# Facts about integers, whose distribution is the range of indices or digits.
_DISTRIBUTED: Final = (DISTINCT, ORDER, QUANTILES)

# ONNX Runtime's own operators, whose inputs are not observed: real weights are read instead.
_UNOBSERVED: Final = "com.microsoft"

Facts = tuple[str, ...]
Types = Mapping[str, ValueType]


def branches_on_values(operator: Operator) -> bool:
    """Whether the work of ``operator`` depends on the values of its inputs."""
    return any(dependence.decisive for dependence in operator.values)


def data_of(graph: Graph, specified: Collection[str] = ()) -> set[str]:
    """The values that depend on the data of inputs, other than ``specified`` ones."""
    data = set(graph.inputs).difference(specified)
    for node in graph.nodes:
        if not operator_of(node).reads_shapes and data.intersection(used_values(node)):
            data.update(node.output)
    return data


def branches_on_data(graph: Graph, specified: Collection[str] = ()) -> list[onnx.NodeProto]:
    """The If nodes whose branch depends on the data of inputs, other than ``specified`` ones."""
    conditional = [node for node in graph.nodes if node.op_type == "If"]
    if not conditional:
        return []
    data = data_of(graph, specified)
    return [node for node in conditional if node.input[0] in data]


def choosing_weights(graph: Graph) -> set[str]:
    """Weights of more than one float from which branches and numbers of iterations are computed."""
    reached = set[str]()
    for node in graph.nodes:
        if node.op_type in ("If", "Loop"):
            reached.update(node.input[: 1 if node.op_type == "If" else 2])
        if conditional_loops([node]) or any(n.op_type in ("If", "Loop") for n in inner_nodes(node)):
            reached.update(used_values(node))  # a choice inside may be computed from any of them
    if not reached:
        return reached
    for node in reversed(graph.nodes):
        if reached.intersection(node.output) and not operator_of(node).reads_shapes:
            reached.update(used_values(node))
    types = graph.types
    return {
        name
        for name in reached.intersection(graph.initializers)
        if isinstance(of := types[name], TensorType) and of.floating and of.elements > 1
    }


def data_decides(proto: onnx.ModelProto) -> bool:
    """Whether the work of a model depends on its weights and inputs, by values or by branches."""
    rows = (operator_of(node) for node in proto.graph.node if not is_call(node))
    deciding = any(not dependence.large_table for row in rows for dependence in row.values)
    if deciding or conditional_loops(proto.graph.node):
        return True
    graph = graph_of(proto)
    return bool(branches_on_data(graph)) or bool(choosing_weights(graph))


def dependent_inputs(
    node: onnx.NodeProto, table_bytes: int | None = None
) -> Iterator[tuple[str, Facts]]:
    """Yield pairs of an input's name and facts on which the latency of an ONNX node depends.

    ``table_bytes`` is the size of its first input in bytes; None if unknown.
    """
    large = table_bytes is not None and table_bytes >= _LARGE_TABLE_BYTES
    for dependence in _observed(node):
        if (large or not dependence.large_table) and dependence.port < len(node.input):
            if node.input[dependence.port]:
                yield node.input[dependence.port], dependence.facts


def _observed(node: onnx.NodeProto) -> Sequence[Dependence]:
    """The dependences of a node whose inputs are observed in a run of the model."""
    return () if node.domain.startswith(_UNOBSERVED) else operator_of(node).values


def dependent_arguments(node: onnx.NodeProto, types: Types) -> Iterator[tuple[str, Facts]]:
    """Yield pairs of an input's name and facts on which the latency of a call depends.

    ``types`` has the types of its inputs. The facts of an input that is to be random are empty.
    """
    values = operator_of(node).values if node.domain == f"{DOMAIN}aten" else ()
    if not values:
        return
    positional, _ = call_of(node).arguments
    large = max(map(_bytes, map(types.get, node.input)), default=0) >= _LARGE_TABLE_BYTES
    for dependence in values:
        for name, type_ in _tensors(positional, dependence.port, node, types):
            if dependence.large_table and type_.dtype in _MASKS:
                yield name, (SELECTED,)
            elif large or not dependence.large_table:
                integers = "INT" in type_.dtype and DISTINCT in dependence.facts
                yield name, _DISTRIBUTED if integers else dependence.facts


def decisive_values(node: onnx.NodeProto, types: Types) -> list[str]:
    """Return the names of the inputs on whose values the latency of a node always depends."""
    if is_call(node):
        return [name for name, _ in dependent_arguments(node, types)]
    ports = [d.port for d in _observed(node) if d.decisive and d.port < len(node.input)]
    return [node.input[port] for port in ports if node.input[port]]


def sketched_values(
    nodes: Sequence[onnx.NodeProto], types: Types, sketches: Mapping[str, Sketch]
) -> dict[str, Sketch]:
    """Return the ``sketches``, by value name, on which the latency of ``nodes`` depends.

    For calls, a sketch is reduced to the facts on which they depend. For nodes of a model, sketches
    are whole, and include the first input's, on which a runtime's own loops branch.
    """
    if is_call(nodes[0]):
        facts = dict[str, set[str]]()
        for node in nodes:
            for name, counting in dependent_arguments(node, types):
                facts.setdefault(name, set()).update(counting)
        reduced = {
            n: sketches[n].with_facts(counting) for n, counting in facts.items() if n in sketches
        }
        return {name: sketch for name, sketch in reduced.items() if sketch is not None}
    names = [
        name
        for node in nodes
        for name in (*node.input[:1], *(n for n, _ in dependent_inputs(node, _LARGE_TABLE_BYTES)))
    ]
    return {name: sketches[name] for name in names if name in sketches}


def _bytes(type_: ValueType | None) -> int:
    return type_.size_bytes if isinstance(type_, TensorType) else 0


def _tensors(
    positional: list[Any], port: int, node: onnx.NodeProto, types: Types
) -> Iterator[tuple[str, TensorType]]:
    """Yield pairs of name and type of the tensors within the argument at the position ``port``."""
    for leaf in leaves(positional[port : port + 1]):
        if isinstance(leaf, dict) and "t" in leaf:
            type_ = types.get(node.input[leaf["t"]])
            if isinstance(type_, TensorType) and type_.elements:
                yield node.input[leaf["t"]], type_


# Values of tensors with more elements don't count, whatever their type: they are data.
SMALL = 64

# Element types whose small constants are shapes, axes, indices and switches. 8 bits and fewer are
# quantised data.
COUNTED = frozenset({"INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64", "BOOL"})

# The most scales or zero points of a weight with one for each channel. Weights with one for each
# block have more; a runtime fuses these weights in any case.
MOST_CHANNELS = 1 << 16


def value_counts(kind: ValueType, *, steering: bool) -> bool:
    """Whether the values of an initializer of this type count for identity.

    ``steering`` is whether a steering input reads them. Strings always count, because no synthetic
    string is valid; so do empty tensors.
    """
    if kind.dtype == "STRING" or 0 in kind.shape:
        return True
    if isinstance(kind, ContainerType):
        return False  # the types of its items count separately
    return kind.elements <= SMALL and (steering or kind.dtype in COUNTED)


def steering_inputs(node: onnx.NodeProto) -> Iterator[tuple[str, bool]]:
    """Yield the names at the node's steering inputs, and whether only scalars steer there.

    Includes the steering inputs of nodes in its subgraphs.
    """
    for inner in (node, *inner_nodes(node)):
        steering = operator_of(inner).steering
        for port in steering.ports:
            if port < len(inner.input) and inner.input[port]:
                yield inner.input[port], steering.scalars_only


def quantization_parameters(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the names at the inputs for scales and zero points of ``nodes``."""
    return {
        name
        for node in nodes
        for port in operator_of(node).steering.quantization
        for name in node.input[port : port + 1]
    }


def steered_values(
    inputs: Iterable[tuple[str, bool]], types: Mapping[str, ValueType]
) -> Iterator[str]:
    """Yield the names in ``inputs`` (of :func:`steering_inputs`) whose types may steer."""
    for name, scalar_only in inputs:
        if not scalar_only or (name in types and types[name].elements == 1):
            yield name
