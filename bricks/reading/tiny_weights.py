"""Weights so small that a runtime may fold them into denormals, noted as sketches of a model.

A batch normalisation whose scale is near zero, as training leaves it on channels that count for
nothing, is multiplied into the weights of the convolution before it. Processors may take a hundred
times as long on denormals, so a model with such a scale is another than one without, and so are the
bricks that get the products. Looks at one number a channel alone; larger weights stay on disk. Must
not know runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.distributions import SHARES
from bricks.graph.payload import (
    PayloadError,
    is_referenced,
    locate,
    read_inline,
    read_referenced,
    reference,
)
from bricks.graph.sketch import QUANTILES, Sketch

# What is smaller makes a denormal of an ordinary weight, or of one that is small itself.
_TINY = 2.0**-96
# Fewer of all are not noted.
_LEAST_SHARE = 1 / 16
_DTYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
_MOST_CHANNELS = 1 << 14


def tiny_weights(
    graph: onnx.GraphProto, folder: Path, noted: Mapping[str, Sketch]
) -> dict[str, Sketch]:
    """Sketches of the weights of ``graph`` with one number a channel of which many are tiny.

    Those whose data are not in ``folder``, as in a suite, have the sketch that was ``noted``, if
    any. Raises :class:`ModelError` for one that is no distribution.
    """
    found: dict[str, Sketch] = {}
    for name, values in _one_for_each_channel(graph, folder):
        if values is None:
            found |= {name: _checked(name, noted[name])} if name in noted else {}
        elif np.mean((values != 0) & (np.abs(values) < _TINY)) >= _LEAST_SHARE:
            found[name] = Sketch.of(values, (QUANTILES,))
    return found


def _checked(name: str, sketch: Sketch) -> Sketch:
    quantiles = sketch.quantiles or ()
    plain = all(isinstance(each, float) and math.isfinite(each) for each in quantiles)
    if len(quantiles) != len(SHARES) or not plain:
        raise ModelError(f"what is noted of weight '{name}' is no distribution")
    return Sketch(quantiles=quantiles)


def _one_for_each_channel(
    graph: onnx.GraphProto, folder: Path
) -> Iterator[tuple[str, np.ndarray | None]]:
    """Weights with one number a channel, by name; None where the data are missing."""
    missing: dict[str, bool] = {}  # files: most weights of a model are in one
    for tensor in graph.initializer:
        if tensor.data_type not in _DTYPES or len(tensor.dims) != 1:
            continue
        if not 1 < tensor.dims[0] <= _MOST_CHANNELS:
            continue
        with suppress(PayloadError):  # whoever needs the values says what is wrong
            if not is_referenced(tensor):
                yield tensor.name, read_inline(tensor)
                continue
            location = reference(tensor).location
            if location not in missing:
                missing[location] = locate(folder, location) is None
            absent = missing[location]
            yield tensor.name, None if absent else read_referenced(folder, tensor)
