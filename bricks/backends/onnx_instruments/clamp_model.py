"""Operators that large inputs slow down, and the input clamp that runs before them.

A tiny result of ``exp`` is a denormal number, on which processors compute up to twenty times
slower; sines of large numbers are slow too. Trained models produce hardly any such numbers. A walk
over some of a model's bricks may omit the normalising ones, so that activations grow from pass to
pass; the clamp keeps them small. It must not know what is measured.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

INPUT_CLAMP = "input clamp"

# Found by running some fifty operators with ONNX Runtime on inputs of magnitudes from 1e-25 to
# 1e30. Attention is listed because it contains a softmax.
_MAGNITUDE_SENSITIVE = frozenset(
    (
        *("Softmax", "LogSoftmax", "BiasSoftmax", "Exp", "Softplus", "Mish"),
        *("Elu", "Selu", "Celu", "Sin", "Cos", "Tan"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)

# The range of synthetic inputs (see ``graph.synthesis``).
_LIMIT = 1.0


def magnitude_sensitive(operator: str) -> bool:
    """Whether ``operator`` may take longer when its input is large."""
    return operator in _MAGNITUDE_SENSITIVE


def input_clamp(elements: int) -> onnx.ModelProto:
    """A model that clamps ``elements`` float32 numbers to -1 … 1."""
    shape = [elements]
    limits = {"low": -_LIMIT, "high": _LIMIT}
    graph = helper.make_graph(
        [helper.make_node("Clip", ["in", "low", "high"], ["out"])],
        "input_clamp",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        initializer=[helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in limits.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
