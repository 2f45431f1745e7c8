"""Values that reading keeps of a model: steering values, small tensors, sketches of tiny weights.

All other weights stay on disk. Denormal weights matter for time: processors may take a hundred
times as long on them. Training leaves scales of batch normalisations near zero on unused channels,
and a runtime multiplies a scale into the weights of the convolution before it; weights of eight-bit
floats with an unfitting scale are mostly denormal too, or their products with the scale are; loops
that widen them branch on zeros. So a model with such weights or scales, and its bricks with them or
the products, have other digests. All weights with one number a channel are
read for that, and parts of larger ones. Must not know runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.distributions import SHARES, quantiles_of
from bricks.graph.payload import (
    PayloadError,
    is_referenced,
    locate,
    numpy_dtype,
    read_inline,
    read_referenced,
    reference,
    storage_shape,
    store_inline,
    tensors_of,
    type_of,
)
from bricks.graph.sketch import QUANTILES, Sketch
from bricks.graph.topology import all_nodes
from bricks.graph.weights import stored_sketch, weight_parts
from bricks.operators.dependence import (
    MOST_CHANNELS,
    SMALL,
    quantization_parameters,
    steered_values,
    steering_inputs,
    value_counts,
)
from bricks.reading.constant_values import ConstantValues

FEW_FLOATS = 8  # such as the bounds of a clip: read if available, because fusions inspect them

# Products of smaller scales with ordinary or small weights are denormal.
_TINY = 2.0**-96
# Smallest share of tiny elements in a noted weight.
_LEAST_SHARE = 1 / 16
_DTYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
_MOST_CHANNELS = 1 << 14
_SHARES = frozenset(("denormals", "zeros", "changes"))


def load_steering_values(graph: onnx.GraphProto, folder: Path, file: str) -> None:
    """Read steering values and small tensors from the files into the skeleton."""
    inputs = [name for node in graph.node for name in steering_inputs(node)]
    types = {tensor.name: type_of(tensor) for tensor in graph.initializer}
    steering = set(steered_values(inputs, types))
    quantizing = quantization_parameters(all_nodes(graph))
    for node in all_nodes(graph):
        for tensor in tensors_of(node):
            if is_referenced(tensor):
                # A runtime needs it to create the operator.
                values = read_referenced(folder, tensor)
                if values is None:
                    raise ModelError(
                        f"{file}: tensor '{tensor.name}' in an attribute has its data in"
                        f" '{reference(tensor).location}', which is missing: put it beside the"
                        " model"
                    )
                store_inline(tensor, values)
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
        values = (
            read_referenced(folder, tensor)
            if type.elements
            else np.empty(storage_shape(type), numpy_dtype(type.dtype))
        )
        if values is not None:
            store_inline(tensor, values)
        elif counts:
            raise ModelError(
                f"{file}: initializer '{tensor.name}' may steer shapes or the choice of an"
                f" algorithm, but its data file '{reference(tensor).location}' is missing:"
                " put it beside the model"
            )


def tiny_weights(
    graph: onnx.GraphProto, folder: Path, noted: Mapping[str, Sketch], file: str
) -> dict[str, Sketch]:
    """Return sketches of the weights of ``graph`` that are denormal or zero, or make denormals.

    If data are not in ``folder``, as in a suite, weights have their ``noted`` sketch, if any.
    Raises :class:`ModelError` for a noted sketch that is none of either kind, and where the data of
    the model in ``file`` cannot be read.
    """
    sketches: dict[str, Sketch] = {}
    for name, type_, parts in weight_parts(graph, folder, file):
        sketch = None if parts is None else stored_sketch(parts, type_.dtype)
        if sketch is not None and len(type_.shape) != 1:
            sketches[name] = sketch
    for name, values in _channel_weights(graph, folder):
        if (
            values is not None
            and np.mean(np.asarray((values != 0) & (np.abs(values) < _TINY))) >= _LEAST_SHARE
        ):
            sketches[name] = Sketch.of(values, (QUANTILES,))
    constants = ConstantValues(graph, folder)
    for name in sorted(constants.origins_of_denormals(_LEAST_SHARE)):
        sketches[name] = Sketch(quantiles=quantiles_of(constants.sample(name)))
    if noted:
        missing = {t.name for t in graph.initializer if not constants.has(t.name)}
        names = {t.name for t in graph.initializer} if missing.intersection(noted) else ()
        sketches = {n: _checked(n, noted[n]) for n in sorted(noted) if n in names} | sketches
    return sketches


def _checked(name: str, sketch: Sketch) -> Sketch:
    facts = sketch.to_json()
    quantiles = facts.pop("quantiles", ())
    shares = facts.keys() <= _SHARES and all(
        isinstance(share, float) and 0 <= share <= 1 for share in facts.values()
    )
    finite = all(isinstance(value, float) and math.isfinite(value) for value in quantiles)
    if not shares or not finite or len(quantiles) != (0 if facts else len(SHARES)):
        raise ModelError(f"what is noted of weight '{name}' is no distribution")
    return sketch


def _channel_weights(
    graph: onnx.GraphProto, folder: Path
) -> Iterator[tuple[str, np.ndarray | None]]:
    """Yield the weights with one number a channel, by name; None if the data are missing."""
    missing: dict[str, bool] = {}  # by data file, which most weights of a model share
    for tensor in graph.initializer:
        if tensor.data_type not in _DTYPES or len(tensor.dims) != 1:
            continue
        if not 1 < tensor.dims[0] <= _MOST_CHANNELS:
            continue
        with suppress(PayloadError):  # reported when the values are needed
            if not is_referenced(tensor):
                yield tensor.name, read_inline(tensor)
                continue
            location = reference(tensor).location
            if location not in missing:
                missing[location] = locate(folder, location) is None
            absent = missing[location]
            yield tensor.name, None if absent else read_referenced(folder, tensor)
