"""ONNX models in PyTorch beside what another runtime computed; run by the Python of PyTorch.

python tests/support/torch_counterparts.py FOLDER, where for each NAME.onnx a NAME.npz has inputs
and expected values. Prints, as JSON, the models by what came of them: ``right``, ``refused`` (with
the reason), ``wrong`` (with the difference), or ``unknown`` without a function for their operator.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from bricks.backends.torch.counterparts import OPERATORS
from bricks.backends.torch.onnx_program import OnnxModule
from bricks.errors import BackendError
from bricks.graph.input_values import ReferenceValues
from bricks.graph.view import parse_model


def outcome(path: Path) -> tuple[str, str]:
    """What came of a model, and why."""
    proto = parse_model(path.read_bytes())
    if any(node.op_type not in OPERATORS for node in proto.graph.node):
        return "unknown", ""
    data = ReferenceValues.load(path.with_suffix(".npz"))
    inputs = [torch.from_numpy(data.inputs[info.name]) for info in proto.graph.input]
    try:
        with torch.no_grad():
            module = OnnxModule(proto, data.weights)
            first, second = module(*inputs), module(*inputs)
    except BackendError as error:
        return "refused", str(error)
    results = [each.numpy() for each in second]
    if not all(map(torch.equal, map(torch.nan_to_num, first), map(torch.nan_to_num, second))):
        return "wrong", "the second step gives other values"
    found = filter(None, map(difference, data.values.values(), results))
    why = next(found, "")
    return ("wrong", why) if why else ("right", "")


def difference(expected: np.ndarray, actual: np.ndarray) -> str:
    """How an output differs; empty if it does not."""
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        return f"{actual.dtype} {actual.shape} instead of {expected.dtype} {expected.shape}"
    near = np.allclose(expected, actual, rtol=1e-3, atol=1e-5, equal_nan=True)
    return "" if near else "other values"


def main(folder: str) -> None:
    """Run all models of ``folder``."""
    found: dict[str, dict[str, str]] = {"right": {}, "refused": {}, "wrong": {}, "unknown": {}}
    for path in sorted(Path(folder).glob("*.onnx")):
        kind, why = outcome(path)
        found[kind][path.stem] = why
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
