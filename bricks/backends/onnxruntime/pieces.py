"""Bricks of ONNX models as plain data: the model, and how its weights and inputs are made.

Must not import ONNX Runtime.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import onnx

from bricks.errors import BackendError
from bricks.graph.model_metadata import known_values, noted_sketches, noted_weights
from bricks.graph.synthesis import (
    input_scale,
    integer_limits,
    numpy_dtype,
    weight_scale,
)
from bricks.graph.types import ELEMENT_BITS, TensorType, ValueType
from bricks.graph.view import graph_of, without_shapes, without_values
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.rotated_inputs import rotated_inputs


def piece_of(proto: onnx.ModelProto) -> dict[str, Any]:
    """Return a brick as JSON: its ``model`` in base64, ``weights``, ``inputs`` and ``outputs``.

    An array is ``[name, dtype, shape, filling, sketch]``. Filling is ``floats`` of a scale and a
    shift, ``integers`` from a least one to below another, or ``values``. Raises
    :class:`BackendError` for types that NumPy lacks.
    """
    graph, types = graph_of(proto), without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(graph, [*graph.inputs, *integers])
    values, sketches = known_values(proto), {**noted_sketches(proto), **noted_weights(proto)}

    def array(name: str, type_: ValueType, scale: tuple[float, float]) -> list[Any]:
        foreign = ("BFLOAT", "FLOAT8", "COMPLEX", "STRING")
        if not isinstance(type_, TensorType) or type_.dtype.startswith(foreign):
            raise BackendError(f"value {name!r} is {type_}, which portable suites cannot hold")
        if ELEMENT_BITS[type_.dtype] < 8:
            raise BackendError(f"value {name!r} is {type_}, which portable suites cannot hold")
        own = type_
        filling: dict[str, Any] = {"floats": list(scale)}
        if name in values:
            filling = {"values": values[name]}
        elif own.dtype == "BOOL":
            filling = {"integers": [0, 2]}
        elif not own.floating:
            filling = {"integers": list(integer_limits(own.dtype, ranges.get(name)))}
        sketch = sketches.get(name)
        known = None if sketch is None else sketch.to_json()
        return [name, np.dtype(numpy_dtype(own.dtype)).name, list(own.shape), filling, known]

    return {
        "model": b64encode(without_shapes(proto).SerializeToString(deterministic=True)).decode(),
        "weights": [array(name, type_, weight_scale(type_)) for name, type_ in types.items()],
        "inputs": [array(n, graph.types[n], input_scale(graph.types[n])) for n in graph.inputs],
        "redrawn": sorted(rotated_inputs(proto).unobserved),
    }
