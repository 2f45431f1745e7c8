"""Handles the request to quantise a model, with its own weights or synthetic ones.

The process must not have made the backend of the tool's runtime, whose sessions share threads. Must
not know what quantised models are used for.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from bricks import backends
from bricks.backends.base import capability
from bricks.backends.quantising import QuantisationMethod, Quantiser
from bricks.backends.synthetic_data import synthetic_data
from bricks.errors import BackendError
from bricks.graph.synthesis import Pool
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.graph.weights import with_own_weights, with_values
from bricks.measure.protocol.graphs import QuantiseModel
from bricks.measure.worker.runtime import WorkerRuntime

# Inputs with which the scales of activations are calibrated.
_SAMPLES = 2

# Most bytes of weights: the tool holds them several times, in messages of protobuf.
_MOST_BYTES = 1 << 30


class QuantisingRequests:
    """Quantises models in the process of ``runtime``, with data of its seed."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def quantise(self, request: QuantiseModel) -> None:
        """Write the quantised model."""
        tool = capability(backends.offer(request.tool, request.location), Quantiser, request.tool)
        proto = parse_model(request.model)
        _refuse_large(proto)
        pool, whole = Pool(self._runtime.settings.seed), graph_of(proto)
        proto = with_own_weights(proto, Path(request.folder))
        weights, _ = synthetic_data(pool, proto, whole, "weights")
        inputs = (synthetic_data(pool, proto, whole, f"sample {n}")[1] for n in range(_SAMPLES))
        samples = [{name: make() for name, make in makers.items()} for makers in inputs]
        target = Path(request.target)
        with TemporaryDirectory(dir=target.parent) as folder:
            source = Path(folder) / "model.onnx"
            onnx.save(with_values(proto, weights), source)
            tool.quantise(source, target, QuantisationMethod(request.method), samples)


def _refuse_large(proto: onnx.ModelProto) -> None:
    """Raise for a model whose weights are too large to be quantised in memory."""
    size_bytes = sum(t.size_bytes for t in without_values(proto).values() if t.dtype != "STRING")
    if size_bytes > _MOST_BYTES:
        raise BackendError(
            f"its weights take {size_bytes / (1 << 30):.1f} GiB, and models of up to 1 GiB are"
            " quantised here: quantise it yourself, and give that file"
        )
