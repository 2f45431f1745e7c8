"""Weights that are denormal, or that a runtime may fold into denormals, as sketches of a model.

Training leaves scales of batch normalisations near zero on unused channels. A runtime multiplies a
scale into the weights of the convolution before it, and processors may take a hundred times as long
on denormals. Weights of eight-bit floats with an unfitting scale are mostly denormal too. So a
model with such weights or scales, and its bricks with them or the products, have other digests.
Reads all weights with one number a channel, and parts of larger ones. Must not know runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.denormals import weight_shares
from bricks.graph.distributions import SHARES, stepped
from bricks.graph.payload import (
    PayloadError,
    is_referenced,
    locate,
    read_inline,
    read_referenced,
    reference,
)
from bricks.graph.sketch import QUANTILES, Sketch

# Products of smaller scales with ordinary or small weights are denormal.
_TINY = 2.0**-96
# Smallest share of tiny elements in a noted weight.
_LEAST_SHARE = 1 / 16
_DTYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
_MOST_CHANNELS = 1 << 14


def tiny_weights(
    graph: onnx.GraphProto, folder: Path, noted: Mapping[str, Sketch], file: str
) -> dict[str, Sketch]:
    """Return sketches of the weights of ``graph`` that are denormal, or scales that may make some.

    Weights whose data are not in ``folder``, as in a suite, have their ``noted`` sketch, if any.
    Raises :class:`ModelError` for a noted sketch that is none of either kind, and where the data of
    the model in ``file`` cannot be read.
    """
    sketches: dict[str, Sketch] = {}
    for name, type_, share in weight_shares(graph, folder, file):
        if share is None and name in noted:
            sketches[name] = _checked(name, noted[name])
        elif share is not None and len(type_.shape) != 1 and stepped(share):
            sketches[name] = Sketch(denormals=stepped(share))
    for name, values in _channel_weights(graph, folder):
        if values is None:
            sketches |= {name: _checked(name, noted[name])} if name in noted else {}
        elif np.mean((values != 0) & (np.abs(values) < _TINY)) >= _LEAST_SHARE:
            sketches[name] = Sketch.of(values, (QUANTILES,))
    return sketches


def _checked(name: str, sketch: Sketch) -> Sketch:
    quantiles, share = sketch.quantiles or (), sketch.denormals
    if not quantiles and isinstance(share, float) and 0 < share <= 1:
        return Sketch(denormals=share)
    finite = all(isinstance(value, float) and math.isfinite(value) for value in quantiles)
    if len(quantiles) != len(SHARES) or not finite:
        raise ModelError(f"what is noted of weight '{name}' is no distribution")
    return Sketch(quantiles=quantiles)


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
