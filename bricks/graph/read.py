"""Read an ONNX file as a :class:`Model`: checked, normalised, with concrete input shapes.

Later stages can rely on one form: constants are initializers, functions are inlined, nodes are
sorted, every input has a producer, no weight is in memory. Must not know runtimes, bricks or
measuring; properties that only a runtime can check (operators of other domains) are accepted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types
from onnx import numpy_helper

from bricks.errors import ModelError, ShapeError, first_line
from bricks.graph.bulk import check_bulk
from bricks.graph.containers import ContainerType, ValueType
from bricks.graph.digest import digest
from bricks.graph.functions import inlined
from bricks.graph.input_values import literal
from bricks.graph.model import Model
from bricks.graph.model_metadata import (
    GIVEN,
    ITEMS,
    checked_type,
    note,
    note_weights,
    noted_weights,
    plain,
)
from bricks.graph.payload import (
    PayloadError,
    all_tensors,
    check_size,
    is_referenced,
    locate,
    numpy_dtype,
    read_referenced,
    reference,
    storage_shape,
    store_inline,
    tensors_of,
    type_of,
)
from bricks.graph.program import is_program
from bricks.graph.program_file import checked_program
from bricks.graph.shapes import make_concrete
from bricks.graph.sizes import parse_shape
from bricks.graph.sketch import Sketch
from bricks.graph.sparse import make_dense
from bricks.graph.steering import (
    MOST_CHANNELS,
    SMALL,
    quantization_parameters,
    steered_values,
    steering_inputs,
    value_counts,
)
from bricks.graph.subgraphs import hoist
from bricks.graph.tensor import TensorType
from bricks.graph.tiny_weights import tiny_weights
from bricks.graph.topology import (
    all_nodes,
    check_attributes,
    check_names,
    default_domain,
    initializer_names,
    label,
    sort_nodes,
    subgraphs,
    tell_apart,
    used_values,
)
from bricks.graph.wire import skim, skim_bytes

__all__ = ["parse_shape", "read_bytes", "read_model"]

Shapes = Mapping[str, Sequence[int | None]]

# No folder: data of a model in memory is looked for there, and never found.
_NOWHERE = Path(os.devnull)
# Of a model in memory, payloads up to here are kept: scales and zero points, which count.
_SENT_BYTES = 1 << 18

# A message of protocol buffers is no larger.
_MOST_BYTES = (1 << 31) - 1

FEW_FLOATS = 8  # such as the bounds of a clip: held if available, because fusions inspect them

_logger = logging.getLogger(__name__)

_STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview.training"})
# Optimisers wrote these into the standard domain long before it had such operators.
_CONVENTIONAL = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})


def read_model(
    path: str | Path,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Model:
    """The model in the ONNX file ``path``, without its weights.

    ``shapes`` gives complete shapes of inputs; ``batch`` is the first dimension of the inputs whose
    first dimension is open or 1. ``values`` holds contents of inputs in the form that a runtime
    takes (arrays, lists for sequences, dicts for maps, None for an absent optional), or texts as on
    the command line (``2,3``); all other inputs are synthetic. ``name`` defaults to the file's name
    without suffix. Data are beside the file; if it is a link, beside the link or beside the file
    itself. What is no file but can be read once (``/dev/stdin``) is read into memory. Raises
    :class:`ModelError`, and :class:`ShapeError` if a dimension stays open or an option is invalid
    for the model.
    """
    started = time.perf_counter()
    given = Path(path)
    if given.is_dir():
        raise ModelError(f"{given} is a folder: give an ONNX file")
    if not given.exists():
        raise ModelError(f"{given} does not exist: give an ONNX file")
    if not given.is_file():
        content, called = _read_once(given), given.name if name is None else name
        return read_bytes(content, called, batch=batch, shapes=shapes, values=values)
    real = given.resolve()
    title = given.stem if name is None else name
    _logger.info("%s: reading %s", title, real)
    _check_encoding(given.name, real.name, title)
    model = _read(skim(real), given, real.parent, title, batch, shapes or {}, values or {})
    return replace(model, read_s=time.perf_counter() - started)


def _read_once(path: Path) -> bytes:
    """All of a pipe or a device; at most as much as ONNX can hold in one message."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise ModelError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    if len(content) > _MOST_BYTES:
        raise ModelError(f"{path} gives more than 2 GiB, which no ONNX model is: give a file")
    return content


def read_bytes(
    content: bytes,
    name: str,
    *,
    batch: int | None = None,
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
) -> Model:
    """The model in ``content``, an ONNX file in memory, of which nothing is written anywhere.

    Data beside the model, and large weights in it, count as missing, as they may be: see
    :func:`read_model`, which also lists the errors.
    """
    started = time.perf_counter()
    _check_encoding(name)
    given = Path(name.replace("/", "_").replace("\0", "_") or "model")
    skeleton = skim_bytes(content, given.name, inline_bytes=_SENT_BYTES)
    model = _read(skeleton, given, _NOWHERE, name, batch, shapes or {}, values or {})
    return replace(model, read_s=time.perf_counter() - started)


def _read(
    skimmed: bytes,
    given: Path,
    folder: Path,
    title: str,
    batch: int | None,
    shapes: Shapes,
    values: Mapping[str, Any],
) -> Model:
    try:
        proto = _parse(skimmed, given)
        if is_program(proto):
            if batch is not None or shapes or values:
                raise ShapeError(
                    f"{given.name}: a recorded program has the shapes that it was recorded with:"
                    " record it again with another batch size"
                )
            inputs = checked_program(proto, given.name)
            skeleton = proto.SerializeToString(deterministic=True)
            return Model(title, folder, skeleton, inputs, digest(proto))
        if given.is_symlink() and folder != _NOWHERE:
            folder = _beside_link(proto.graph, given, folder)
        _normalise(proto, given, folder)
        _check_places(proto.graph, folder)
        held = _given(proto.graph, values, given.name)
        types = {name: type_ for name, (_, type_) in held.items()}
        inputs, rebatched = make_concrete(proto.graph, batch, shapes, given.name, types)
        noted = _noted_weights(proto)
        _note_inputs(proto, dict(inputs), {name: value for name, (value, _) in held.items()})
        _drop_shapes(proto.graph, changed=rebatched)
        _hold_steering_values(proto.graph, folder, given.name)
        note_weights(proto, tiny_weights(proto.graph, folder, noted))
        key = digest(proto)
    except PayloadError as exc:
        raise ModelError(f"{given.name}: {exc}") from exc
    skeleton = proto.SerializeToString(deterministic=True)
    return Model(title, folder, skeleton, inputs, key, rebatched=rebatched)


def _check_encoding(*names: str) -> None:
    """Raise for names that are not UTF-8: neither a model nor a plan could store them."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as exc:
            shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            raise ModelError(f"{shown}: this name is no valid UTF-8: rename the file") from exc


def _parse(skeleton: bytes, path: Path) -> onnx.ModelProto:
    check_bulk(skeleton, path.name)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(skeleton)
    except DecodeError as exc:
        raise ModelError(f"{path} is not an ONNX model: {first_line(exc)}") from exc
    if not proto.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it holds no graph")
    del proto.training_info[:]
    check_attributes(proto, path.name)
    return inlined(proto, path.name)


def _given(
    graph: onnx.GraphProto, values: Mapping[str, Any], file: str
) -> dict[str, tuple[Any, ValueType]]:
    """The given values of inputs, with their types."""
    declared = {value.name: value.type for value in graph.input}
    for name in values:
        if name not in declared:
            listed = ", ".join(f"'{known}'" for known in declared) or "none"
            raise ShapeError(f"{file}: there is no input '{name}'; inputs are: {listed}")
    try:
        given = {
            name: literal(name, v, declared[name]) if isinstance(v, str) else v
            for name, v in values.items()
        }
        return {name: (v, checked_type(name, v, declared[name])) for name, v in given.items()}
    except ModelError as exc:
        raise ShapeError(f"{file}: {exc}") from exc


def _note_inputs(
    proto: onnx.ModelProto, types: Mapping[str, ValueType], values: Mapping[str, Any]
) -> None:
    """Write the given values and types of inputs to the metadata; remove all other metadata."""
    del proto.metadata_props[:]
    containers = {n: t.to_json() for n, t in types.items() if isinstance(t, ContainerType)}
    note(proto, ITEMS, containers)
    note(proto, GIVEN, {name: plain(value, types[name]) for name, value in values.items()})


def _noted_weights(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """What was noted of weights where their data were, as a suite keeps it."""
    try:
        return noted_weights(proto)
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(f"what is noted of its weights cannot be read: {first_line(exc)}") from exc


def _normalise(proto: onnx.ModelProto, path: Path, folder: Path) -> None:
    """Bring ``proto`` into the form that later stages rely on, and check it."""
    graph, file = proto.graph, path.name
    if not set(map(type, _texts(proto))) <= {str}:
        raise ModelError(f"{path} is not an ONNX model: a name in it is no text")
    for node in all_nodes(graph):
        if not default_domain(node.domain):
            node.ClearField("domain")
    tell_apart(graph)
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


def _beside_link(graph: onnx.GraphProto, link: Path, folder: Path) -> Path:
    """The folder of the data of a model that is a link to a file in ``folder``.

    A runtime looks beside the link. The data there may be links too, into the folder of the model's
    own file, as in the cache of a hub: then they are referred to by their names in that folder.
    Raises :class:`ModelError` where some data are in one folder, and some in the other.
    """
    home, moved = link.absolute().parent, dict[str, str]()
    tensors = [tensor for tensor in all_tensors(graph) if is_referenced(tensor)]
    locations = {reference(tensor).location for tensor in tensors}
    for location in locations:
        if (home / location).exists():
            data = (home / location).resolve()
            there = data.is_relative_to(folder)
            moved[location] = str(data.relative_to(folder)) if there else ""
    if not all(moved.values()):
        if any(moved.get(each) or (folder / each).exists() for each in locations):
            raise ModelError(
                f"{link} is a link, and some of its data are beside the link, some beside the file"
                f" that it leads to, in {folder}: put all data into one folder"
            )
        return home
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = moved.get(entry.value, entry.value)
    return folder


def _check_places(graph: onnx.GraphProto, folder: Path) -> None:
    """Raise for data outside the model's ``folder``, including data behind a link."""
    places = {reference(tensor).location for tensor in all_tensors(graph) if is_referenced(tensor)}
    for place in sorted(places):
        locate(folder, place)


def _texts(proto: onnx.ModelProto) -> list[object]:
    """Every name in ``proto``; protobuf returns names that are not UTF-8 as bytes."""
    found: list[object] = []
    for node in all_nodes(proto.graph):
        found += node.input
        found += node.output
        found += (node.name, node.op_type, node.domain)
        found += [attribute.name for attribute in node.attribute]
        for body in subgraphs(node):
            found += [value.name for value in (*body.input, *body.output)]
    for value in (*proto.graph.input, *proto.graph.output):
        found.append(value.name)
        found += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    for tensor in all_tensors(proto.graph):
        found.append(tensor.name)
        for entry in tensor.external_data:
            found += (entry.key, entry.value)
    return found + [entry.domain for entry in proto.opset_import]


def _check_operators(proto: onnx.ModelProto, file: str) -> None:
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = default_domain(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    if proto.ir_version < 3:
        opsets.setdefault("", 1)  # the field came with IR version 3
    checked: set[tuple[str, str]] = set()
    for node in all_nodes(proto.graph):
        kind = (node.domain, node.op_type)
        if kind in checked:
            continue
        checked.add(kind)
        shown = node.domain or "ai.onnx"
        if node.domain not in opsets:
            raise ModelError(
                f"{file}: node {label(node)} is of domain {shown}, which the model does not import"
            )
        if node.domain not in _STANDARD_DOMAINS or (not node.domain and kind[1] in _CONVENTIONAL):
            continue
        version = opsets[node.domain]
        try:
            onnx.defs.get_schema(node.op_type, max(0, min(version, 2**31 - 1)), node.domain)
        except onnx.defs.SchemaError as exc:
            raise ModelError(
                f"{file}: node {label(node)}: domain {shown}, opset {version},"
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
    """The value of a Constant node; None for strings and sparse tensors, which stay nodes."""
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


def _drop_shapes(graph: onnx.GraphProto, *, changed: bool, inner: bool = False) -> None:
    """Drop stored shapes except the inputs': they follow from these, and could contradict them."""
    del graph.value_info[:]
    values = [*graph.output]
    if inner and changed:
        values += graph.input
    for value in values:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for subgraph in subgraphs(node):
            _drop_shapes(subgraph, changed=changed, inner=True)


def _hold_steering_values(graph: onnx.GraphProto, folder: Path, file: str) -> None:
    """Read steering values and small tensors from the files into the skeleton."""
    inputs = [each for node in graph.node for each in steering_inputs(node)]
    types = {tensor.name: type_of(tensor) for tensor in graph.initializer}
    steering = set(steered_values(inputs, types))
    quantizing = quantization_parameters(all_nodes(graph))
    for node in all_nodes(graph):
        for tensor in tensors_of(node):
            if is_referenced(tensor):
                _hold_attribute(tensor, folder, file)
    for tensor in graph.initializer:
        type = type_of(tensor)
        if not is_referenced(tensor) or type.dtype == "STRING":
            continue
        counts = value_counts(type, steering=tensor.name in steering)
        limit = FEW_FLOATS if type.floating and not counts else SMALL
        if tensor.name in quantizing:
            limit = MOST_CHANNELS
        if type.elements > limit:
            continue
        values = read_referenced(folder, tensor) if type.elements else _nothing(type)
        if values is not None:
            store_inline(tensor, values)
        elif counts:
            raise ModelError(
                f"{file}: initializer '{tensor.name}' may steer shapes or the choice of an"
                f" algorithm, but its data file '{reference(tensor).location}' is missing:"
                " put it beside the model"
            )


def _hold_attribute(tensor: onnx.TensorProto, folder: Path, file: str) -> None:
    """Read an attribute's tensor into the skeleton: a runtime needs it to create the operator."""
    values = read_referenced(folder, tensor)
    if values is None:
        raise ModelError(
            f"{file}: tensor '{tensor.name}' in an attribute has its data in"
            f" '{reference(tensor).location}', which is missing: put it beside the model"
        )
    store_inline(tensor, values)


def _nothing(type: TensorType) -> np.ndarray:
    """The values of an empty tensor."""
    return np.empty(storage_shape(type), numpy_dtype(type.dtype))
