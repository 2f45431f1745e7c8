"""Graphs of ONNX models: views of a ``ModelProto`` of known types, and a model's source graph.

The types of a ``ModelProto`` are known if it comes from a runtime or is a brick: a view is its
:class:`Graph`, its weights, or a part of it. The types of a source graph are inferred.

onnx's shape inference needs shapes and the constants that determine shapes, not the weights. It
cannot infer outputs of other domains' operators or shapes that depend on data. This module reports
such values by name; a caller can observe their types in a run and call it again. Must not know
runtimes or bricks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.shape_inference
from onnx import numpy_helper

from bricks.errors import ModelError, ShapeError, first_line
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Graph, Model
from bricks.graph.model_metadata import container_types, inner_types, known_values, runtime_value
from bricks.graph.onnx_types import type_proto
from bricks.graph.payload import PayloadError, is_referenced, type_of
from bricks.graph.topology import captured, default_domain, label, used_values
from bricks.graph.types import ELEMENT_BITS, TensorType

if TYPE_CHECKING:
    from bricks.graph.types import ValueType


def parse_model(data: bytes) -> onnx.ModelProto:
    """Parse a ``ModelProto``; :class:`ModelError` if the bytes are invalid."""
    try:
        return onnx.load_model_from_string(data)
    except Exception as exc:  # protobuf's own error classes differ between its implementations
        raise ModelError(f"not a serialised ONNX model ({len(data)} bytes)") from exc


def _tensor_type(info: onnx.ValueInfoProto) -> TensorType:
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "nothing"
        raise ModelError(f"value {info.name!r} is a {kind.removesuffix('_type')}, not a tensor")
    tensor = info.type.tensor_type
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in dims):
        raise ModelError(f"value {info.name!r} has no concrete shape")
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type)
    return TensorType(dtype, tuple(d.dim_value for d in dims))


def without_values(proto: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the types of the initializers without values (the weights), by name."""
    return {t.name: type_of(t) for t in proto.graph.initializer if is_referenced(t)}


def without_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the shapes that a runtime should infer itself.

    The shapes of a brick's outputs may come from one run of a model. A runtime infers the static
    shapes and allocates the others as it runs. A stated shape may also contradict a branch that the
    run did not execute.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    branched = {n for node in copy.graph.node if node.op_type == "If" for n in captured(node)}
    for value in (*copy.graph.output, *(i for i in copy.graph.input if i.name in branched)):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def upstream(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the part of ``proto`` that computes the values ``names``, which are its outputs.

    Names that are inputs of ``proto`` are inputs of the result, but not outputs.
    """
    needed = set(names)
    nodes = []
    for node in reversed(proto.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(used_values(node))
    part = onnx.ModelProto()
    part.ir_version = proto.ir_version
    part.opset_import.extend(proto.opset_import)
    part.metadata_props.extend(proto.metadata_props)
    part.graph.name = proto.graph.name
    part.graph.node.extend(reversed(nodes))
    part.graph.input.extend(i for i in proto.graph.input if i.name in needed)
    part.graph.initializer.extend(t for t in proto.graph.initializer if t.name in needed)
    produced = {name for node in nodes for name in node.output}
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name in produced)
    return part


def graph_of(proto: onnx.ModelProto, types: Mapping[str, ValueType] | None = None) -> Graph:
    """Return ``proto`` as a :class:`Graph`, with ``types`` for values whose type it omits.

    Inputs must have a concrete type. Types of containers and of values inside bricks are in the
    metadata (see :mod:`bricks.graph.model_metadata`). Other values without a type are omitted from
    the ``types`` of the result.
    """
    graph = proto.graph
    known = container_types(proto)
    known.update({info.name: _tensor_type(info) for info in graph.input if info.name not in known})
    for info in (*graph.output, *graph.value_info):
        with suppress(ModelError):
            known.setdefault(info.name, _tensor_type(info))
    known.update(types or {})
    for name, type_ in inner_types(proto).items():
        known.setdefault(name, type_)
    for tensor in graph.initializer:
        known[tensor.name] = type_of(tensor)
    return Graph(
        nodes=tuple(graph.node),
        inputs=tuple(i.name for i in graph.input),
        outputs=tuple(o.name for o in graph.output),
        initializers={t.name: t for t in graph.initializer},
        types=known,
        opsets={o.domain: o.version for o in proto.opset_import},
        ir_version=proto.ir_version,
    )


class OpenShapes(ShapeError):
    """Raised for values whose types cannot be inferred: ``open_values``, in node order."""

    def __init__(self, message: str, open_values: tuple[str, ...] = ()) -> None:
        """Keep the one-line ``message`` and the names of the values."""
        super().__init__(message)  # the message alone: `str` and pickle then behave as usual
        self.open_values = open_values


def source_graph(model: Model, known: Mapping[str, ValueType] | None = None) -> Graph:
    """Return the nodes of ``model`` with the concrete type of every value.

    ``known`` are observed types, which take precedence over inferred ones. Raises
    :class:`OpenShapes` if types stay open, as the types of containers always do. Unused outputs
    may be missing from the nodes. A recorded program states all types itself.
    """
    proto = onnx.ModelProto.FromString(model.skeleton)
    if form_of(proto) is ModelForm.PROGRAMS:
        return graph_of(proto, known)
    return _inferred_graph(model, proto, dict(known or {}))


def _inferred_graph(model: Model, proto: onnx.ModelProto, known: dict[str, ValueType]) -> Graph:
    """Return the nodes of an ONNX model, whose types follow from the types of its inputs."""
    outputs = {value.name: value for value in proto.graph.output}
    for name, type in known.items():
        info = onnx.ValueInfoProto(name=name, type=type_proto(type))
        if name in outputs:
            outputs[name].CopyFrom(info)
        else:
            proto.graph.value_info.append(info)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=True).graph
    # Inference skips errors of single nodes; it raises others of no documented class.
    except Exception as exc:
        raise ShapeError(f"{model.name}: shapes cannot be inferred: {first_line(exc)}") from exc
    initializers = {tensor.name: tensor for tensor in proto.graph.initializer}
    types: dict[str, ValueType] = dict(model.inputs)
    try:
        types.update((name, type_of(tensor)) for name, tensor in initializers.items())
    except PayloadError as exc:
        raise ModelError(f"{model.name}: {exc}") from exc
    types.update(_inferred(inferred, model.name))
    types.update(known)
    _drop_unused_outputs(proto, types)
    missing = [
        (name, node)
        for node in proto.graph.node
        for name in node.output
        if name and name not in types
    ]
    if missing:
        name, node = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise OpenShapes(
            f"{model.name}: the shape of value '{name}' of node {label(node)} stays open{more}:"
            " it depends on data, or on an operator that onnx does not know",
            tuple(name for name, _ in missing),
        )
    return Graph(
        nodes=tuple(proto.graph.node),
        inputs=tuple(name for name, _ in model.inputs),
        outputs=tuple(value.name for value in proto.graph.output),
        initializers=initializers,
        types=types,
        opsets={default_domain(entry.domain): entry.version for entry in proto.opset_import},
        ir_version=proto.ir_version,
    )


def typed_graph(proto: onnx.ModelProto, known: Mapping[str, ValueType] | None = None) -> Graph:
    """Return the source graph of a model in memory, with all types and its initializers.

    ``known`` are observed types. Raises :class:`OpenShapes` as :func:`source_graph`.
    """
    stated = graph_of(proto)
    inputs = tuple((name, stated.types[name]) for name in stated.inputs)
    values = known_values(proto)
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    for name, type_ in inputs:
        if name in values and isinstance(type_, TensorType):  # shapes may depend on the value
            array = np.asarray(runtime_value(values[name], type_))
            fixed.graph.initializer.append(numpy_helper.from_array(array, name))
    graph = source_graph(Model("graph", Path(), fixed.SerializeToString(), inputs, ""), known)
    return replace(graph, initializers=stated.initializers)


def _inferred(graph: onnx.GraphProto, file: str) -> Iterator[tuple[str, ValueType]]:
    for value in (*graph.value_info, *graph.output):
        if value.type.WhichOneof("value") != "tensor_type":
            continue  # the items of a container are observed in a run
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if not tensor.elem_type or not tensor.HasField("shape"):
            continue
        # An explicit zero is a size; an absent value is unknown; a negative one is a wrong result.
        if all(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0 for dim in dims):
            dtype = onnx.TensorProto.DataType.Name(tensor.elem_type)
            if dtype not in ELEMENT_BITS and dtype != "STRING":
                raise ModelError(f"{file}: value '{value.name}' is of type {dtype}: not supported")
            yield value.name, TensorType(dtype, tuple(dim.dim_value for dim in dims))


def _drop_unused_outputs(proto: onnx.ModelProto, types: Mapping[str, ValueType]) -> None:
    """Remove unused optional outputs of unknown type.

    Models exported from training have such outputs: masks of Dropout, statistics of
    BatchNormalization.
    """
    opsets = {default_domain(entry.domain): entry.version for entry in proto.opset_import}
    used = {name for node in proto.graph.node for name in used_values(node)}
    used.update(value.name for value in proto.graph.output)
    for node in proto.graph.node:
        if all(name in types or name in used or not name for name in node.output):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        except onnx.defs.SchemaError:
            continue  # another domain's operator: its optional outputs are unknown
        for i, formal in enumerate(schema.outputs[: len(node.output)]):
            optional = formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional
            if optional and node.output[i] not in used and node.output[i] not in types:
                node.output[i] = ""
        while node.output and not node.output[-1]:
            del node.output[-1]
