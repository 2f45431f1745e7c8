"""Operators that take longer for large numbers, and what makes numbers small before they run.

A result of ``exp`` that is almost nothing is a denormal number, with which processors compute up to
twenty times slower; sines of large numbers are slow as well. Models are trained so that hardly any
such numbers occur. A walk over some of a model's bricks makes numbers grow instead, since what
would normalise them is not among them. It must not know what is measured.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

INPUT_CLAMP = "input clamp"

# Found by running some fifty operators with ONNX Runtime on numbers of magnitudes from 1e-25 to
# 1e30. Attention is here for the softmax in it.
_MINDING = frozenset(
    (
        *("Softmax", "LogSoftmax", "BiasSoftmax", "Exp", "Softplus", "Mish"),
        *("Elu", "Selu", "Celu", "Sin", "Cos", "Tan"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)

# As inputs that have no predecessor are made up (see ``graph.synthesis``).
_LIMIT = 1.0


def magnitude_sensitive(operator: str) -> bool:
    """Whether ``operator`` may take longer where its input is large."""
    return operator in _MINDING


def input_clamp(elements: int) -> onnx.ModelProto:
    """A model that brings so many float32 numbers between -1 and 1."""
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
