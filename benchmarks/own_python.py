"""Runs a model with ONNX Runtime's own Python for some seconds: prints seconds of each run.

    python benchmarks/own_python.py FILE.onnx THREADS SECONDS

Weights that the file leaves out are filled at random, as inputs are. Must not import bricks.
"""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

_WARM_UPS = 3
_KINDS = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}


def main(path: str, threads: int, seconds: float) -> list[float]:
    """Seconds of each run."""
    model = onnx.load(path, load_external_data=False)
    random = np.random.default_rng(0)
    for weight in model.graph.initializer:
        if weight.data_location == TensorProto.EXTERNAL:
            weight.CopyFrom(numpy_helper.from_array(_drawn(weight, random), weight.name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {value.name: _input(value, random) for value in session.get_inputs()}
    for _ in range(_WARM_UPS):
        session.run(None, feeds)
    taken, until = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        session.run(None, feeds)
        taken.append(time.perf_counter() - began)
    return taken


def _drawn(weight: TensorProto, random: np.random.Generator) -> np.ndarray:
    """Values that keep activations of a usual size."""
    shape = tuple(weight.dims)
    if len(shape) < 2:
        values = random.uniform(0.5, 1.0, shape)
    else:
        values = random.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
    return np.asarray(values, helper.tensor_dtype_to_np_dtype(weight.data_type))


def _input(value: onnxruntime.NodeArg, random: np.random.Generator) -> np.ndarray:
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    if value.type in _KINDS:
        return np.ones(shape, _KINDS[value.type])
    return random.standard_normal(shape).astype(np.float32)


if __name__ == "__main__":
    json.dump(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])), sys.stdout)
