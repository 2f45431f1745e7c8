"""Define which constants are steering values, whose contents are loaded and count for identity.

A weight may be any number, but a shape, an axis or an exponent may not. Reading uses this module to
decide which values to load from disk; the digest of models and the identity of bricks use it to
decide which values count. Must not know how values are read, or what a brick is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bricks.graph.containers import ContainerType, ValueType
from bricks.graph.topology import inner_nodes
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

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
