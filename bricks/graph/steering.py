"""Define which constants are steering values, whose contents are held and count for identity.

A weight may be any number, but a shape, an axis or an exponent may not. Reading uses this module to
decide which values to load from disk; the digest of models and the identity of bricks use it to
decide which values count. Must not know how values are read, or what a brick is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from bricks.graph.containers import ContainerType, ValueType
from bricks.graph.topology import default_domain, inner_nodes

# Values of tensors with more elements don't count, whatever their type: they are data.
SMALL = 64

# Element types whose small constants are shapes, axes, indices and switches. 8 bits and fewer are
# quantised data.
COUNTED = frozenset({"INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64", "BOOL"})

# Inputs whose values steer shapes or the choice of an algorithm even as floating-point numbers.
STEERING = {
    "Resize": (1, 2, 3),  # roi, scales, sizes (before opset 11: scales)
    "Upsample": (1,),  # scales
    "Pow": (1,),  # exponent, if it is one number: squares and roots have fast paths
    "Range": (0, 1, 2),  # start, limit, delta
    "NonMaxSuppression": (2, 3, 4),  # boxes per class, thresholds
    "TopK": (1,),  # k
    "OneHot": (1,),  # depth
    "MelWeightMatrix": (3, 4),  # edges
}

# Nodes whose scales and zero points decide what they are fused with: a convolution with a bias is
# computed in integers only if the bias's scale is the product of those of its input and its weight.
_QUANTIZING, _SCALE, _ZERO_POINT = ("QuantizeLinear", "DequantizeLinear"), 1, 2
# There may be one for each channel. Those of blocks of a weight are too many, and fused regardless.
MOST_CHANNELS = 1 << 16


def value_counts(kind: ValueType, *, steering: bool) -> bool:
    """Whether the values of an initializer of this type count; ``steering``: see STEERING.

    Strings always count, because no synthetic ones are valid; so do empty tensors.
    """
    if kind.dtype == "STRING" or 0 in kind.shape:
        return True
    if isinstance(kind, ContainerType):
        return False  # the types of its items count separately
    return kind.elements <= SMALL and (steering or kind.dtype in COUNTED)


def steering_inputs(node: onnx.NodeProto) -> Iterator[tuple[str, bool]]:
    """Names at the node's steering inputs, and whether they are steering values as scalars only.

    Includes the steering inputs of nodes in its subgraphs.
    """
    for each in (node, *inner_nodes(node)):
        if default_domain(each.domain) == "":
            for port in STEERING.get(each.op_type, ()):
                if port < len(each.input) and each.input[port]:
                    yield each.input[port], each.op_type == "Pow"


def quantization_parameters(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names at the inputs for scales and zero points of ``nodes`` that (de)quantise."""
    return {
        name
        for node in nodes
        if default_domain(node.domain) == "" and node.op_type in _QUANTIZING
        for name in node.input[_SCALE : _ZERO_POINT + 1]
    }


def steered_values(
    inputs: Iterable[tuple[str, bool]], types: Mapping[str, ValueType]
) -> Iterator[str]:
    """The names in ``inputs`` (of :func:`steering_inputs`) that are steering values by type."""
    for name, scalar_only in inputs:
        if not scalar_only or (name in types and types[name].elements == 1):
            yield name
