"""The digest of a model: equal for files that differ only in values or location of their weights.

Results for a model thus stay valid after its weights were retrained, moved or omitted. Must not
know how models are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx

from bricks.graph.model_metadata import (
    CHOOSING,
    ITEMS,
    SPECIFIED,
    choosing_digests,
    container_types,
    known_values,
    note,
    note_sketches,
    note_weights,
    noted_sketches,
    noted_weights,
)
from bricks.graph.payload import (
    all_tensors,
    is_referenced,
    read_inline,
    read_referenced,
    store_inline,
    type_of,
)
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of
from bricks.operators.dependence import (
    SMALL,
    choosing_weights,
    data_decides,
    quantization_parameters,
    steered_values,
    steering_inputs,
    value_counts,
)


def digest(proto: onnx.ModelProto) -> str:
    """Return ``m1-`` and 32 hexadecimal digits of SHA-256 over ``proto`` without weights.

    Values do not count if they are weights: references, tensors of more than one float, and tensors
    of more than 64 integers of 8 bits or less, except scales and zero points of quantisation, on
    which fusions depend. Other values count: integers, floats that are steering values (scales of
    Resize, for example) and single floats, which fusions inspect. User-specified values of inputs
    count if they would count as constants, or if the time of operators or a branch depends on
    values. So do the items of specified containers, the sketches of a recorded program's inputs,
    the distribution of tiny weights (see ``reading.tiny_weights``), and the values of weights that
    choose a branch or a number of iterations. Names count; documentation, producer and other
    metadata do not.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    containers, specified = container_types(proto), known_values(proto)
    weights, choosing = noted_weights(proto), choosing_digests(proto)
    for field in ("producer_name", "producer_version", "doc_string", "model_version"):
        copy.ClearField(field)
    del copy.metadata_props[:]
    graph = copy.graph
    for field in ("name", "doc_string", "metadata_props"):
        graph.ClearField(field)
    for node in all_nodes(graph):
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    inputs = [name for node in graph.node for name in steering_inputs(node)]
    types = graph_of(proto).types
    steering = set(steered_values(inputs, types))
    quantizing = quantization_parameters(all_nodes(graph))
    for tensor in all_tensors(graph):
        tensor.ClearField("doc_string")
        if is_referenced(tensor):
            del tensor.external_data[:]
        elif tensor.name not in quantizing and _is_weight(tensor, steering):
            _clear_values(tensor)
        elif tensor.data_type != onnx.TensorProto.STRING:
            # The same values can be encoded in several forms.
            store_inline(tensor, read_inline(tensor))
    note(copy, ITEMS, {name: type.to_json() for name, type in sorted(containers.items())})
    decide = bool(specified) and data_decides(proto)
    counted = (
        n for n in sorted(specified) if decide or value_counts(types[n], steering=n in steering)
    )
    note(copy, SPECIFIED, {name: specified[name] for name in counted})
    note_sketches(copy, noted_sketches(proto))
    note_weights(copy, weights)
    note(copy, CHOOSING, choosing)
    data = copy.SerializeToString(deterministic=True)
    return "m1-" + hashlib.sha256(data).hexdigest()[:32]


def digests_of_choosing(
    proto: onnx.ModelProto, folder: Path, noted: Mapping[str, str]
) -> dict[str, str]:
    """Return digests of the values of weights from which branches are computed, by name.

    Weights without data in ``folder``, as in a suite, have their ``noted`` digest, if any. Raises
    :class:`PayloadError` for data that cannot be read.
    """
    names = choosing_weights(graph_of(proto))
    digests = {}
    for tensor in all_tensors(proto.graph) if names else ():
        if tensor.name not in names:
            continue
        referred = is_referenced(tensor)
        values = read_referenced(folder, tensor) if referred else read_inline(tensor)
        if values is not None:
            digests[tensor.name] = hashlib.sha256(values.tobytes()).hexdigest()[:32]
        elif tensor.name in noted:
            digests[tensor.name] = noted[tensor.name]
    return dict(sorted(digests.items()))


def _is_weight(tensor: onnx.TensorProto, steering: set[str]) -> bool:
    type = type_of(tensor)
    if value_counts(type, steering=tensor.name in steering):
        return False
    if type.floating or "COMPLEX" in type.dtype:
        return type.elements > 1
    narrow = type.dtype.removeprefix("U") in ("INT8", "INT4", "INT2")
    return narrow and type.elements > SMALL


def _clear_values(tensor: onnx.TensorProto) -> None:
    name, data_type, dims = tensor.name, tensor.data_type, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type = name, data_type
    tensor.dims.extend(dims)
    # In the form of a referenced weight: the weight's size in the file must not affect the digest.
    tensor.data_location = onnx.TensorProto.EXTERNAL
