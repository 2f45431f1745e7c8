"""Entries of a model's metadata: known values of inputs, types, sketches, iterations and layouts.

Types are in the metadata if ONNX cannot express them, or if runtimes must not see them.

Some inputs cannot be synthetic: the target of a Reshape, the branch of an If, the contents of a
sequence. The metadata of a model holds the values that a user specified, the metadata of a brick
the values that its model computed. Values have the form in which a runtime takes and returns them:
arrays, lists (sequences), dicts (maps), None (an absent optional). Arrays have their storage type
(see ``payload``), except types of fewer than 8 bits, which keep their own type and are not packed.
Must not know how synthetic values are drawn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.onnx_types import dtype_of, notation
from bricks.graph.payload import numpy_dtype, packed, unpacked, value_dtype
from bricks.graph.program import call_of, is_call
from bricks.graph.sketch import Sketch
from bricks.graph.types import ELEMENT_BITS, ContainerType, TensorType, ValueType, type_from_json

# Keys of metadata: types of containers; types of a brick's inner values; and flattened values of
# inputs, which are steering values in bricks and user-specified values in models.
ITEMS, INNER_TYPES = "bricks.items", "bricks.between"
STEERING, SPECIFIED = "bricks.steering", "bricks.given"
# Sketches of inputs on whose values operators of a brick depend, by name: see ``graph.sketch``.
# Sketches of signs only have a key of their own, as lists of two or three numbers.
SIGNS, SKETCHES = "bricks.signs", "bricks.sketches"
# Sketches of weights: shares of denormals in a brick, distributions of tiny weights in a model.
WEIGHTS = "bricks.weights"
# Digests of weights that decide what is run, by name.
CHOOSING = "bricks.choosing_weights"
# Iterations of the conditional loops of a brick, by the name of a loop's first output.
ITERATIONS = "bricks.iterations"
# Layouts of a brick's inputs and outputs, by name, where a runtime uses a layout of its own.
LAYOUTS = "bricks.layouts"
# Kernels that run a brick in its model, where the runtime would run others for it in isolation.
OTHER_KERNELS, _IN_MODEL = "bricks.other_kernels", "in_model"
# Key of facts about the model that a brick is from.
CONTEXT = "bricks.context"
# The only fact: log2 of the bytes of the model's weights, rounded down.
LOG_WEIGHT_BYTES = "log2_weight_bytes"

_TENSOR = re.compile(r"(\w+) ([a-z0-9]+)\[([0-9,]*)\]")


def note(proto: onnx.ModelProto, key: str, facts: Mapping[str, Any]) -> None:
    """Write ``facts`` into the metadata of ``proto``, if there are any."""
    if facts:
        proto.metadata_props.add(key=key, value=json.dumps(facts))


def container_types(proto: onnx.ModelProto) -> dict[str, ValueType]:
    """Read the types of containers among the inputs and outputs of ``proto``, by name."""
    return {name: type_from_json(data) for name, data in _noted(proto, ITEMS).items()}


def note_inner_types(proto: onnx.ModelProto, types: Mapping[str, ValueType]) -> None:
    """Write the ``types`` of the inner values of ``proto``, if there are any."""
    if types:
        text = "; ".join(f"{name} {type_}" for name, type_ in types.items())
        proto.metadata_props.add(key=INNER_TYPES, value=text)


def inner_types(proto: onnx.ModelProto) -> dict[str, ValueType]:
    """Read the types of the inner values of ``proto`` that are tensors, by name."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == INNER_TYPES]
    parts = (_TENSOR.fullmatch(part) for text in texts for part in text.split("; "))
    return {
        part[1]: TensorType(part[2].upper(), tuple(map(int, filter(None, part[3].split(",")))))
        for part in parts
        if part
    }


def note_sketches(proto: onnx.ModelProto, sketches: Mapping[str, Sketch]) -> None:
    """Write the ``sketches`` of inputs into the metadata of ``proto``, if there are any."""
    signs = {name: sketch for name, sketch in sketches.items() if sketch.signs_only}
    note(proto, SIGNS, {name: [*sketch.to_json().values()] for name, sketch in signs.items()})
    others = {name: sketch for name, sketch in sketches.items() if name not in signs}
    note(proto, SKETCHES, {name: sketch.to_json() for name, sketch in others.items()})


def noted_sketches(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """Read the sketches of inputs on whose values operators depend, by name."""
    signs = {name: Sketch(*shares) for name, shares in _noted(proto, SIGNS).items()}
    others = _noted(proto, SKETCHES).items()
    return signs | {name: Sketch.from_json(fields) for name, fields in others}


def sketches_of(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """Return the sketches of all values on which operators of a brick depend, by name.

    Calls that an earlier version recorded state the zeros that they read in their attributes.
    """
    sketches = noted_sketches(proto)
    for node in filter(is_call, proto.graph.node):
        for name, eighths in zip(node.input, call_of(node).zeros, strict=False):
            if eighths:
                sketches[name] = Sketch(zeros=eighths / 8, changes=0.0)
    return sketches


def without_sketches(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of ``proto`` without sketches of inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    others = [entry for entry in proto.metadata_props if entry.key not in (SIGNS, SKETCHES)]
    del copy.metadata_props[:]
    copy.metadata_props.extend(others)
    return copy


def note_weights(proto: onnx.ModelProto, sketches: Mapping[str, Sketch]) -> None:
    """Write the ``sketches`` of weights into the metadata of ``proto``, if there are any."""
    note(proto, WEIGHTS, {name: sketch.to_json() for name, sketch in sorted(sketches.items())})


def noted_weights(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """Read the sketches of weights whose values make a difference, by name."""
    return {name: Sketch.from_json(fields) for name, fields in _noted(proto, WEIGHTS).items()}


def choosing_digests(proto: onnx.ModelProto) -> dict[str, str]:
    """Read the digests of weights from which branches are computed, by name."""
    return {name: str(digest) for name, digest in _noted(proto, CHOOSING).items()}


def noted_iterations(proto: onnx.ModelProto) -> dict[str, int]:
    """Read the iterations of conditional loops, by the name of their first output."""
    return _noted(proto, ITERATIONS)


def value_dependence(proto: onnx.ModelProto) -> dict[str, Any]:
    """Return the facts on which the time of a brick depends, as JSON by input or weight.

    Loops are listed by their first output, with their ``iterations``.
    """
    noted = sketches_of(proto) | noted_weights(proto)
    sketches = {name: sketch.to_json() for name, sketch in noted.items()}
    return sketches | {name: {"iterations": n} for name, n in noted_iterations(proto).items()}


def noted_layouts(proto: onnx.ModelProto) -> dict[str, str]:
    """Read the layouts of inputs and outputs that a runtime lays out its own way, by name."""
    return _noted(proto, LAYOUTS)


def note_other_kernels(proto: onnx.ModelProto, in_model: Sequence[str]) -> None:
    """Write the kernels of a brick ``in_model``, if it runs other kernels in isolation."""
    note(proto, OTHER_KERNELS, {_IN_MODEL: list(in_model)} if in_model else {})


def noted_other_kernels(proto: onnx.ModelProto) -> list[str]:
    """Read the kernels of a brick in its model; none if it runs the same in isolation."""
    kernels: list[str] = _noted(proto, OTHER_KERNELS).get(_IN_MODEL, [])
    return kernels


def noted_weight_bytes(proto: onnx.ModelProto) -> float | None:
    """Return about how many bytes of weights the model of a brick has; None if not noted."""
    noted = _noted(proto, CONTEXT)
    return 1.5 * 2.0 ** noted[LOG_WEIGHT_BYTES] if noted else None


def steering_values_of(proto: onnx.ModelProto) -> dict[str, Any]:
    """Read the steering values of a brick's inputs, by name, as :func:`json_value` writes them."""
    return _noted(proto, STEERING)


def known_values(proto: onnx.ModelProto) -> dict[str, Any]:
    """Read the known values of inputs, by name, as :func:`json_value` writes them."""
    return {**_noted(proto, SPECIFIED), **_noted(proto, STEERING)}


def specified_values(proto: onnx.ModelProto, types: Mapping[str, ValueType]) -> dict[str, Any]:
    """Read the user-specified values of a model's inputs, by name, as a runtime takes them."""
    return {
        name: runtime_value(data, types[name]) for name, data in _noted(proto, SPECIFIED).items()
    }


def _noted(proto: onnx.ModelProto, key: str) -> dict[str, Any]:
    texts = [entry.value for entry in proto.metadata_props if entry.key == key]
    if not texts:
        return {}
    noted: dict[str, Any] = json.loads(texts[-1])
    return noted


def json_value(value: Any, type_: ValueType) -> Any:
    """Return a runtime's ``value`` as JSON: tensors and containers become flat lists."""
    if isinstance(type_, TensorType):
        array = np.ascontiguousarray(value).reshape(-1)
        if type_.dtype == "STRING":
            return [_text(item) for item in array.tolist()]
        if "COMPLEX" in type_.dtype:
            array = array.view(array.real.dtype)
        elif ELEMENT_BITS[type_.dtype] < 8:
            array = packed(array, ELEMENT_BITS[type_.dtype])
        elif array.dtype != numpy_dtype(type_.dtype):
            array = array.view(numpy_dtype(type_.dtype))
        flat: list[Any] = array.tolist()
        return flat
    if type_.dtype.startswith("map("):
        return [[key, item] for key, item in value.items()]
    if type_.dtype.startswith("optional("):
        return None if value is None else json_value(value, type_.items[0])
    return [json_value(*pair) for pair in zip(value, type_.items, strict=True)]


def runtime_value(data: Any, type_: ValueType) -> Any:
    """Return the array, list, dict or None that :func:`json_value` wrote as ``data``."""
    if isinstance(type_, TensorType):
        if type_.dtype == "STRING":
            return np.array(data, dtype=object).reshape(type_.shape)
        if "COMPLEX" in type_.dtype:
            parts = np.array(data, numpy_dtype(type_.dtype).type(0).real.dtype)
            return parts.view(numpy_dtype(type_.dtype)).reshape(type_.shape)
        array = np.array(data, numpy_dtype(type_.dtype))
        if ELEMENT_BITS[type_.dtype] < 8:
            return unpacked(array, type_)
        return array.reshape(type_.shape)
    if type_.dtype.startswith("map("):
        return dict(data)
    if type_.dtype.startswith("optional("):
        return None if data is None else runtime_value(data, type_.items[0])
    return [runtime_value(*pair) for pair in zip(data, type_.items, strict=True)]


def checked_type(name: str, value: Any, declared: onnx.TypeProto) -> ValueType:
    """Return the type of a user's ``value`` for input ``name`` of type ``declared``.

    Raises :class:`ModelError` for a value of another type.
    """
    kind = declared.WhichOneof("value")
    if kind == "tensor_type":
        dtype = dtype_of(declared.tensor_type.elem_type)
        if not isinstance(value, np.ndarray | np.generic) or not _fits(value.dtype, dtype):
            actual = getattr(value, "dtype", type(value).__name__)
            raise ModelError(f"the value given for input '{name}' is {actual}, not {dtype.lower()}")
        return TensorType(dtype, np.shape(value))
    if kind == "sequence_type" and isinstance(value, list):
        inner = declared.sequence_type.elem_type
        items = tuple(checked_type(name, item, inner) for item in value)
        return ContainerType(notation(declared), items)
    if kind == "optional_type":
        inner = declared.optional_type.elem_type
        items = () if value is None else (checked_type(name, value, inner),)
        return ContainerType(notation(declared), items)
    if kind == "map_type" and isinstance(value, dict):
        number = declared.map_type.value_type.tensor_type.elem_type
        values = TensorType(dtype_of(number), (len(value),))
        return ContainerType(notation(declared), (values,))
    raise ModelError(
        f"the value given for input '{name}' is {type(value).__name__}, not {notation(declared)}"
    )


def _fits(actual: np.dtype[Any], dtype: str) -> bool:
    if dtype == "STRING":
        return actual.kind in "OUST"
    if actual == value_dtype(dtype):
        return True
    return ELEMENT_BITS[dtype] >= 8 and actual == numpy_dtype(dtype)


def _text(value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as exc:
        raise ModelError(f"a text that was given is no valid UTF-8: {value!r}") from exc
