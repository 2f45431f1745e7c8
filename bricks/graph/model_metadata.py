"""Known values of inputs, stored in a model's metadata and read from there.

The metadata also holds types that ONNX cannot express, or that runtimes must not see.

Some inputs cannot be synthetic: the target of a Reshape, a branch to take, the contents of a
sequence. Models carry the values that users gave, bricks those that the model computed, so that a
runtime finds them in one place. Values have the form in which a runtime takes and returns them:
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
from bricks.graph.containers import ContainerType, ValueType, type_from_json
from bricks.graph.declared import dtype_of, notation
from bricks.graph.payload import numpy_dtype, packed, unpacked, value_dtype
from bricks.graph.program import call_of, is_call
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import ELEMENT_BITS, TensorType

# Keys of metadata: types of containers; types of a brick's inner values; and flattened values of
# inputs, which are steering values in bricks and given values in models.
ITEMS, BETWEEN = "bricks.items", "bricks.between"
STEERING, GIVEN = "bricks.steering", "bricks.given"
# What operators of a brick depend on in the values of inputs, by name: see ``graph.sketch``.
# Sketches of signs alone have a key of their own, as lists of two or three numbers.
SIGNS, SKETCHES = "bricks.signs", "bricks.sketches"
# The same of weights: of a brick, how many are denormal, and of a model, where some are tiny.
WEIGHTS = "bricks.weights"
# How often a loop of a brick runs, by the name of its first output, where its condition decides.
ITERATIONS = "bricks.iterations"
# The layouts of a brick's inputs and outputs, by name, where a runtime keeps them in its own.
LAYOUTS = "bricks.layouts"
# The kernels that a brick is in its model, where its runtime would run others for it alone.
OTHER_KERNELS, _IN_MODEL = "bricks.other_kernels", "in_model"
# Key of what is known about the model that a brick is from.
CONTEXT = "bricks.context"
# The one fact about it: the logarithm to base 2, rounded down, of the bytes of its weights.
LOG_WEIGHT_BYTES = "log2_weight_bytes"

_TENSOR = re.compile(r"(\w+) ([a-z0-9]+)\[([0-9,]*)\]")


def note(proto: onnx.ModelProto, key: str, facts: Mapping[str, Any]) -> None:
    """Write ``facts`` into the metadata of ``proto``, if there are any."""
    if facts:
        proto.metadata_props.add(key=key, value=json.dumps(facts))


def container_types(proto: onnx.ModelProto) -> dict[str, ValueType]:
    """Types of the containers among the inputs and outputs of ``proto``, by name."""
    return {name: type_from_json(data) for name, data in _noted(proto, ITEMS).items()}


def note_between(proto: onnx.ModelProto, types: Mapping[str, ValueType]) -> None:
    """Write the ``types`` of the inner values of ``proto``, if there are any."""
    if types:
        text = "; ".join(f"{name} {type_}" for name, type_ in types.items())
        proto.metadata_props.add(key=BETWEEN, value=text)


def between_types(proto: onnx.ModelProto) -> dict[str, ValueType]:
    """The inverse of :func:`note_between`, without containers."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == BETWEEN]
    parts = (_TENSOR.fullmatch(part) for text in texts for part in text.split("; "))
    return {
        part[1]: TensorType(part[2].upper(), tuple(map(int, filter(None, part[3].split(",")))))
        for part in parts
        if part
    }


def note_sketches(proto: onnx.ModelProto, sketches: Mapping[str, Sketch]) -> None:
    """Write the ``sketches`` of inputs into the metadata of ``proto``, if there are any."""
    signs = {name: sketch for name, sketch in sketches.items() if sketch.signs_alone}
    note(proto, SIGNS, {name: [*each.to_json().values()] for name, each in signs.items()})
    others = {name: each.to_json() for name, each in sketches.items() if name not in signs}
    note(proto, SKETCHES, others)


def noted_sketches(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """The sketches of inputs on whose values operators depend, by name, as they were noted."""
    signs = {name: Sketch(*held) for name, held in _noted(proto, SIGNS).items()}
    others = _noted(proto, SKETCHES).items()
    return signs | {name: Sketch.from_json(held) for name, held in others}


def sketches_of(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """The sketches of all that the operators of a brick read and depend on, by name.

    Calls that were recorded by an earlier version say themselves how many zeros they read.
    """
    found = noted_sketches(proto)
    for node in filter(is_call, proto.graph.node):
        for name, eighths in zip(node.input, call_of(node).zeros, strict=False):
            if eighths:
                found[name] = Sketch(zeros=eighths / 8, changes=0.0)
    return found


def without_sketches(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``proto`` that notes no sketches."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    others = [note for note in proto.metadata_props if note.key not in (SIGNS, SKETCHES)]
    del copy.metadata_props[:]
    copy.metadata_props.extend(others)
    return copy


def note_weights(proto: onnx.ModelProto, sketches: Mapping[str, Sketch]) -> None:
    """Write the ``sketches`` of weights into the metadata of ``proto``, if there are any."""
    note(proto, WEIGHTS, {name: sketch.to_json() for name, sketch in sorted(sketches.items())})


def noted_weights(proto: onnx.ModelProto) -> dict[str, Sketch]:
    """The sketches of weights that are not like others, by name."""
    return {name: Sketch.from_json(held) for name, held in _noted(proto, WEIGHTS).items()}


def noted_iterations(proto: onnx.ModelProto) -> dict[str, int]:
    """Numbers of iterations of conditional loops, by the name of their first output."""
    return _noted(proto, ITERATIONS)


def value_dependence(proto: onnx.ModelProto) -> dict[str, Any]:
    """On what values the time of a brick depends, as facts by input or weight; empty: on none.

    Loops are listed by their first output, with how often they run.
    """
    noted = sketches_of(proto) | noted_weights(proto)
    sketches = {name: sketch.to_json() for name, sketch in noted.items()}
    return sketches | {name: {"iterations": n} for name, n in noted_iterations(proto).items()}


def noted_layouts(proto: onnx.ModelProto) -> dict[str, str]:
    """The layouts of inputs and outputs that a runtime keeps in its own, by name."""
    return _noted(proto, LAYOUTS)


def note_other_kernels(proto: onnx.ModelProto, in_model: Sequence[str]) -> None:
    """Write down the kernels of a brick ``in_model``, if it runs as others alone."""
    note(proto, OTHER_KERNELS, {_IN_MODEL: list(in_model)} if in_model else {})


def noted_other_kernels(proto: onnx.ModelProto) -> list[str]:
    """The kernels of a brick in its model, if it runs as others alone; else none."""
    kernels: list[str] = _noted(proto, OTHER_KERNELS).get(_IN_MODEL, [])
    return kernels


def noted_weight_bytes(proto: onnx.ModelProto) -> float | None:
    """About how many bytes of weights the model of a brick has; None where that does not count."""
    noted = _noted(proto, CONTEXT)
    return 1.5 * 2.0 ** noted[LOG_WEIGHT_BYTES] if noted else None


def steering_values_of(proto: onnx.ModelProto) -> dict[str, Any]:
    """The steering values among the inputs of a brick, by name, in the form of ``plain``."""
    return _noted(proto, STEERING)


def known_values(proto: onnx.ModelProto) -> dict[str, Any]:
    """The known values of inputs of ``proto``, by name, in the form of ``plain``."""
    return {**_noted(proto, GIVEN), **_noted(proto, STEERING)}


def given_values(proto: onnx.ModelProto, types: Mapping[str, ValueType]) -> dict[str, Any]:
    """The values given for inputs of a model, by name, in the form that a runtime takes."""
    return {name: natural(data, types[name]) for name, data in _noted(proto, GIVEN).items()}


def _noted(proto: onnx.ModelProto, key: str) -> dict[str, Any]:
    texts = [entry.value for entry in proto.metadata_props if entry.key == key]
    if not texts:
        return {}
    noted: dict[str, Any] = json.loads(texts[-1])
    return noted


def plain(value: Any, type_: ValueType) -> Any:
    """``value`` of this type in JSON form: tensors and containers flattened to lists."""
    if isinstance(type_, TensorType):
        array = np.ascontiguousarray(value).reshape(-1)
        if type_.dtype == "STRING":
            return [_text(each) for each in array.tolist()]
        if "COMPLEX" in type_.dtype:
            array = array.view(array.real.dtype)
        elif ELEMENT_BITS[type_.dtype] < 8:
            array = packed(array, ELEMENT_BITS[type_.dtype])
        elif array.dtype != numpy_dtype(type_.dtype):
            array = array.view(numpy_dtype(type_.dtype))
        flat: list[Any] = array.tolist()
        return flat
    if type_.dtype.startswith("map("):
        return [[key, each] for key, each in value.items()]
    if type_.dtype.startswith("optional("):
        return None if value is None else plain(value, type_.items[0])
    return [plain(each, item) for each, item in zip(value, type_.items, strict=True)]


def natural(data: Any, type_: ValueType) -> Any:
    """The inverse of :func:`plain`: arrays, lists, dicts and None."""
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
        return {key: each for key, each in data}
    if type_.dtype.startswith("optional("):
        return None if data is None else natural(data, type_.items[0])
    return [natural(each, item) for each, item in zip(data, type_.items, strict=True)]


def checked_type(name: str, value: Any, declared: onnx.TypeProto) -> ValueType:
    """The type of a ``value`` given for input ``name`` of type ``declared``.

    Raises :class:`ModelError` if the value is of another type.
    """
    kind = declared.WhichOneof("value")
    if kind == "tensor_type":
        dtype = dtype_of(declared.tensor_type.elem_type)
        if not isinstance(value, np.ndarray | np.generic) or not _fits(value.dtype, dtype):
            found = getattr(value, "dtype", type(value).__name__)
            raise ModelError(f"the value given for input '{name}' is {found}, not {dtype.lower()}")
        return TensorType(dtype, np.shape(value))
    if kind == "sequence_type" and isinstance(value, list):
        inner = declared.sequence_type.elem_type
        items = tuple(checked_type(name, each, inner) for each in value)
        return ContainerType(notation(declared), items)
    if kind == "optional_type":
        inner = declared.optional_type.elem_type
        items = () if value is None else (checked_type(name, value, inner),)
        return ContainerType(notation(declared), items)
    if kind == "map_type" and isinstance(value, dict):
        number = declared.map_type.value_type.tensor_type.elem_type
        held = TensorType(dtype_of(number), (len(value),))
        return ContainerType(notation(declared), (held,))
    raise ModelError(
        f"the value given for input '{name}' is {type(value).__name__}, not {notation(declared)}"
    )


def _fits(found: np.dtype[Any], dtype: str) -> bool:
    if dtype == "STRING":
        return found.kind in "OUST"
    return found == value_dtype(dtype) or (ELEMENT_BITS[dtype] >= 8 and found == numpy_dtype(dtype))


def _text(value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as exc:
        raise ModelError(f"a text that was given is no valid UTF-8: {value!r}") from exc
