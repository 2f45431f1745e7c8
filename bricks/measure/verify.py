"""Is a decomposition exact? Run the bricks one after another and compare with the whole model.

Runs in the worker process, on the same synthetic inputs for both, with the model's own weights
where its files have them and synthetic ones elsewhere. Chaining the nodes of the executed graph
must give bitwise the same outputs; pieces of the source graph are optimised one by one, so their
floating-point sums may be ordered otherwise.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.backends.base import Backend
from bricks.decompose.granularity import Granularity, split
from bricks.decompose.identity import Cutter, Piece
from bricks.graph.domains import integer_ranges
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.source import OpenShapes, source_graph
from bricks.graph.synthesis import Pool
from bricks.graph.view import (
    graph_of,
    parse_model,
    tensor_type,
    without_output_shapes,
    without_values,
)
from bricks.graph.weights import has_own_weights, own_weights


def verify_model(
    backend: Backend, *, seed: int, name: str, folder: str, model: str, granularity: str
) -> dict[str, Any]:
    """Chain the bricks of ``model`` (base64 skeleton) and compare outputs with the whole model.

    Returns ``exact`` (bitwise equal), ``max_abs_difference``, ``max_rel_difference`` (relative to
    the greatest magnitude of the output), ``own_weights`` and ``finite`` (all outputs are).
    """
    skeleton = base64.b64decode(model)
    proto = parse_model(skeleton)
    inputs = tuple((i.name, tensor_type(i)) for i in proto.graph.input)
    given = Model(name, Path(folder), skeleton, inputs, digest="")
    own = has_own_weights(given)
    weights = own_weights(given) if own else _synthetic_weights(proto, Pool(seed))
    feeds = _inputs(proto, Pool(seed))
    expected = backend.evaluate(proto, weights, feeds, optimize=True)
    cut = Granularity.parse(granularity)
    if cut.executed:
        executed, arrays = backend.materialised(proto, weights)
        graph = graph_of(executed.proto, executed.types)
    else:
        graph, arrays = _source(backend, given, proto), weights
    actual = chain(backend, graph, arrays, feeds, cut)
    return {"own_weights": own, **compare(expected, actual)}


def chain(
    backend: Backend,
    graph: Graph,
    weights: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    granularity: Granularity,
) -> list[np.ndarray]:
    """The graph's outputs, computed brick by brick along the plan."""
    cutter = Cutter(graph)
    pieces = [cutter.cut(nodes) for nodes in split(graph, granularity)]
    readers = Counter(name for piece in pieces for name in piece.inputs)
    readers.update(graph.outputs)
    values = dict(feeds)
    constants = cutter.graph.initializers
    values.update(  # an output may be a constant
        (name, _array(constants[name], name, weights))
        for name in graph.outputs
        if name in constants
    )
    for piece in pieces:
        results = _run(
            backend, piece, constants, weights, values, optimize=not granularity.executed
        )
        values.update(zip(piece.outputs, results, strict=True))
        for name in piece.inputs:
            readers[name] -= 1
            if not readers[name]:
                del values[name]
    return [values[name] for name in graph.outputs]


def compare(expected: list[np.ndarray] | Any, actual: list[np.ndarray]) -> dict[str, Any]:
    """How far ``actual`` is from ``expected``, over all outputs."""
    exact, absolute, relative, finite = True, 0.0, 0.0, True
    for a, b in zip(expected, actual, strict=True):
        same = a.shape == b.shape and a.dtype == b.dtype
        exact &= same and a.tobytes() == b.tobytes()
        if not same:
            return {
                "exact": False,
                "max_abs_difference": None,
                "max_rel_difference": None,
                "finite": finite,
            }
        x, y = a.astype(np.float64), b.astype(np.float64)
        good = np.isfinite(x)
        finite &= bool(good.all())
        if not np.array_equal(good, np.isfinite(y)):
            absolute = relative = float("inf")
        elif good.any():
            difference = float(np.abs(x[good] - y[good]).max())
            absolute = max(absolute, difference)
            relative = max(relative, difference / max(float(np.abs(x[good]).max()), 1e-30))
    return {
        "exact": exact,
        "max_abs_difference": absolute if np.isfinite(absolute) else None,
        "max_rel_difference": relative if np.isfinite(relative) else None,
        "finite": finite,
    }


def _source(backend: Backend, model: Model, proto: onnx.ModelProto) -> Graph:
    try:
        return source_graph(model)
    except OpenShapes:
        return source_graph(model, backend.types(proto))


def _run(
    backend: Backend,
    piece: Piece,
    constants: Mapping[str, onnx.TensorProto],
    weights: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    *,
    optimize: bool,
) -> list[np.ndarray]:
    brick = piece.brick
    arrays = {
        name: _array(constants[original], original, weights)
        for name, original in zip(brick.weights, piece.weights, strict=True)
    }
    feeds = {
        name: values[original] for name, original in zip(brick.inputs, piece.inputs, strict=True)
    }
    proto = without_output_shapes(parse_model(brick.model))
    for info in proto.graph.input:  # what depends on data may differ from what the plan saw
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        for size in feeds[info.name].shape:
            shape.dim.add().dim_value = size
    return list(backend.evaluate(proto, arrays, feeds, optimize=optimize))


def _array(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return weights[name]
    return numpy_helper.to_array(tensor)


def _synthetic_weights(proto: onnx.ModelProto, pool: Pool) -> dict[str, np.ndarray]:
    types = without_values(proto)
    ranges = integer_ranges(graph_of(proto), [n for n, t in types.items() if not t.floating])
    return {name: pool.weight(name, type_, ranges.get(name)) for name, type_ in types.items()}


def _inputs(proto: onnx.ModelProto, pool: Pool) -> dict[str, np.ndarray]:
    graph = graph_of(proto)
    ranges = integer_ranges(graph, graph.inputs)
    return {name: pool.input(name, graph.types[name], ranges.get(name)) for name in graph.inputs}
