"""Convert values to and from ONNX Runtime: tensors of all types, and containers.

Types that numpy cannot hold are passed as unsigned integers of the same width. The runtime itself
creates strings and sequences, because its Python interface binds no others. An absent optional and
a map cannot be bound at all. Must not know models.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from bricks.errors import BackendError, first_line
from bricks.graph.onnx_types import type_proto
from bricks.graph.payload import numpy_dtype, packed, unpacked, value_dtype
from bricks.graph.types import ELEMENT_BITS, ContainerType, TensorType, ValueType

PROVIDERS = ["CPUExecutionProvider"]

# The runtime's name of an element type ("tensor(float)"), and ONNX's.
DTYPES = {f"tensor({name.lower()})": name for name in onnx.TensorProto.DataType.keys()}

# Types without a numpy counterpart; they are passed as unsigned integers of the same width.
_FOREIGN = frozenset(
    name for name, bits in ELEMENT_BITS.items() if name.startswith(("BFLOAT", "FLOAT8")) or bits < 8
)

# Noise in the runtime's messages: the prefix, and the position in its source code.
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_POSITION = re.compile(
    r"/onnxruntime_src/\S+:\d+ .*?\)(?:::<lambda\(.*?\)>\)?)?(?: const)?(?: \[with .*?\])? "
)
_LONGEST_MESSAGE = 300


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn any exception of ONNX Runtime into a :class:`BackendError` of one line."""
    try:
        yield
    except BackendError:
        raise
    except MemoryError as exc:
        raise BackendError(f"onnxruntime ran out of memory while {doing}") from exc
    except Exception as exc:  # the runtime's errors have no common base class
        text = _SOURCE_POSITION.sub("", _CODE.sub("", first_line(exc, 10_000)))
        text = text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"
        if "bad_alloc" in text or "Failed to allocate memory" in text:
            raise BackendError(f"onnxruntime ran out of memory while {doing}: {text}") from exc
        raise BackendError(f"onnxruntime failed while {doing}: {text}") from exc


def to_value(value: Any, type_: ValueType) -> ort.OrtValue:
    """An OrtValue over the memory of an array, or with copies of a sequence of arrays.

    Raises :class:`BackendError` for values that the runtime cannot bind.
    """
    with translated(f"taking a value of type {type_}"):
        if isinstance(type_, TensorType):
            if type_.dtype in _FOREIGN:
                bits = ELEMENT_BITS[type_.dtype]
                if bits < 8:  # packed, in an array of the tensor's shape, which has more bytes
                    data = packed(value, bits) if value.dtype == value_dtype(type_.dtype) else value
                    value = np.zeros(type_.shape, np.uint8)
                    value.reshape(-1)[: data.size] = data
                number = onnx.TensorProto.DataType.Value(type_.dtype)
                return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, number)
            if type_.dtype == "STRING":
                tensor = onnx.TensorProto(data_type=onnx.TensorProto.STRING, dims=type_.shape)
                tensor.string_data.extend(str(text).encode() for text in value.reshape(-1))
                node = helper.make_node("Constant", [], ["y"], value=tensor)
                return _session(node, [], type_proto(type_)).run_with_ort_values(["y"], {})[0]
            return ort.OrtValue.ortvalue_from_numpy(value)
        if type_.dtype.startswith("optional(") and value is not None:
            return to_value(value, type_.items[0])
        if type_.dtype.startswith("seq(tensor("):
            names = [f"x{i}" for i in range(len(value))]
            session = _maker(type_.dtype, len(value))
            values = {n: to_value(v, t) for n, v, t in zip(names, value, type_.items, strict=True)}
            return session.run_with_ort_values(["y"], values)[0]
    what = "an optional that is absent" if value is None else type_.dtype
    raise BackendError(f"onnxruntime cannot be handed {what} ahead of a run")


def to_array(value: ort.OrtValue) -> np.ndarray:
    """The values of a tensor as a numpy array, of its storage type where numpy has none."""
    with translated(f"reading a result of type {value.data_type()}"):
        dtype = DTYPES[value.data_type()]
        if dtype not in _FOREIGN:
            array: np.ndarray = value.numpy()
            return array
        type_ = TensorType(dtype, tuple(value.shape()))
        data = ctypes.string_at(value.data_ptr(), type_.size_bytes) if type_.elements else b""
        values = np.frombuffer(data, numpy_dtype(dtype))
        return unpacked(values, type_) if ELEMENT_BITS[dtype] < 8 else values.reshape(type_.shape)


def run(session: ort.InferenceSession, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of one run by name: arrays, lists, dicts, None."""
    names = [output.name for output in session.get_outputs()]
    dtypes = {i.name: DTYPES.get(i.type) for i in session.get_inputs()}
    numbers = {
        name: to_value(feeds[name], TensorType(dtype, np.shape(feeds[name])))
        for name, dtype in dtypes.items()
        if dtype in ELEMENT_BITS
    }
    tensors_alone = len(numbers) == len(feeds) and all(
        output.type in DTYPES for output in session.get_outputs()
    )
    results = (
        map(to_array, session.run_with_ort_values(names, numbers))
        if tensors_alone
        else session.run(names, {**feeds, **numbers})
    )
    return dict(zip(names, results, strict=True))


def type_of_value(value: Any, notation: str) -> ValueType:
    """The type of a ``value`` that the runtime returned, declared as ``notation``."""
    inner = notation.partition("(")[2].removesuffix(")")
    if notation in DTYPES:
        return TensorType(DTYPES[notation], tuple(value.shape))
    if notation.startswith("optional("):
        return ContainerType(notation, () if value is None else (type_of_value(value, inner),))
    if notation.startswith("seq("):
        return ContainerType(notation, tuple(type_of_value(item, inner) for item in value))
    if notation.startswith("map("):
        dtype = DTYPES[inner.partition(",")[2]]
        return ContainerType(notation, (TensorType(dtype, (len(value),)),))
    raise BackendError(f"a value is a {notation}: not supported")


@cache
def _maker(notation: str, count: int) -> ort.InferenceSession:
    dtype = onnx.TensorProto.DataType.Value(DTYPES[notation.removeprefix("seq(").removesuffix(")")])
    names = [f"x{i}" for i in range(count)]
    node = helper.make_node("SequenceConstruct", names, ["y"])
    if not count:
        node = helper.make_node("SequenceEmpty", [], ["y"], dtype=dtype)
    inputs = [helper.make_tensor_value_info(name, dtype, None) for name in names]
    return _session(node, inputs, type_proto(ContainerType(notation)))


def _session(
    node: onnx.NodeProto, inputs: Sequence[onnx.ValueInfoProto], output: onnx.TypeProto
) -> ort.InferenceSession:
    outputs = [onnx.ValueInfoProto(name="y", type=output)]
    graph = helper.make_graph([node], "values", list(inputs), outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    return ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)
