"""The source graph of a model, with the inferred type of every value.

onnx's shape inference needs shapes and the constants that determine shapes, not the weights. It
cannot infer outputs of other domains' operators or shapes that depend on data. This module reports
such values by name; a caller can observe their types in a run and call it again. Must not know
runtimes or bricks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.shape_inference
from onnx import numpy_helper

from bricks.errors import ModelError, ShapeError, first_line
from bricks.graph.form import ModelForm, form_of
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.model_metadata import known_values, runtime_value
from bricks.graph.onnx_types import type_proto
from bricks.graph.payload import PayloadError, type_of
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.topology import default_domain, label, used_values
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType


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
    _declare(proto.graph, known)
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
    _check_complete(proto.graph, types, model.name)
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


def _declare(graph: onnx.GraphProto, known: Mapping[str, ValueType]) -> None:
    """Declare the known types, from which inference continues."""
    outputs = {value.name: value for value in graph.output}
    for name, type in known.items():
        info = onnx.ValueInfoProto(name=name, type=type_proto(type))
        if name in outputs:
            outputs[name].CopyFrom(info)
        else:
            graph.value_info.append(info)


def _inferred(graph: onnx.GraphProto, file: str) -> Iterator[tuple[str, ValueType]]:
    """Yield the complete types that inference wrote into ``graph``, by value."""
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


def _check_complete(graph: onnx.GraphProto, types: Mapping[str, ValueType], file: str) -> None:
    missing = [
        (name, node) for node in graph.node for name in node.output if name and name not in types
    ]
    if missing:
        name, node = missing[0]
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise OpenShapes(
            f"{file}: the shape of value '{name}' of node {label(node)} stays open{more}:"
            " it depends on data, or on an operator that onnx does not know",
            tuple(name for name, _ in missing),
        )
