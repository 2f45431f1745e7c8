"""The onnx package's operator cases on MXNet; run by the Python of MXNet's environment.

Prints, as JSON, which cases MXNet computes right, which it refuses and why, and which are wrong.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.update(OMP_NUM_THREADS="1", MXNET_ENGINE_TYPE="NaiveEngine")

import numpy as np
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from bricks.backends.mxnet.backend import MxnetBackend
from bricks.backends.mxnet.node import OPERATORS
from bricks.errors import BricksError

# What MXNet does not have: it has no booleans, and gives float32 for what others call float64.
_KINDS = "fiu"


def outcome(backend: MxnetBackend, case: object) -> tuple[str, str]:
    """What came of a case, and why."""
    model = case.model
    given, expected = case.data_sets[0]
    if not all(isinstance(a, np.ndarray) and a.dtype.kind in _KINDS for a in (*given, *expected)):
        return "refused", "it knows numbers alone"
    feeds = dict(zip((i.name for i in model.graph.input), given, strict=False))
    try:
        results = backend.evaluate(with_shapes(model, given), {}, feeds, optimize=True)
    except BricksError as error:
        return "refused", str(error)
    for a, b in zip(expected, results, strict=True):
        if a.shape != b.shape:
            return "wrong", f"shape {b.shape} instead of {a.shape}"
        if not np.allclose(a, b, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5)):
            return "wrong", f"off by {np.abs(a - b).max():.3g}"
    return "right", ""


def with_shapes(model: object, given: list[np.ndarray]) -> object:
    """``model``, whose inputs of an operator's settings are constants, as models have them."""
    copy = type(model)()
    copy.CopyFrom(model)
    steering = [i for i, a in enumerate(given) if i > 0 and a.size <= 16 and a.ndim <= 1]
    for i in reversed(steering):
        if model.graph.node[0].op_type in STEERED:
            info = copy.graph.input[i]
            copy.graph.initializer.append(numpy_helper.from_array(given[i], info.name))
            del copy.graph.input[i]
    return copy


STEERED = frozenset(
    ("Clip", "Reshape", "Slice", "Pad", "Expand", "Tile", "Squeeze", "Unsqueeze", "Split",
     "Resize", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
)  # fmt: skip


def main() -> None:
    """Run the cases of every operator that is translated."""
    backend = MxnetBackend(seed=0, fuse=True)
    found: dict[str, dict[str, str]] = {"right": {}, "refused": {}, "wrong": {}}
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in OPERATORS and not nodes[0].domain:
            kind, why = outcome(backend, case)
            found[kind][case.name] = why
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
