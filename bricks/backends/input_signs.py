"""Signs as in a model, written before operators whose time depends on them.

See ``graph.signs``. The walk that measures a brick does not hold all that its model runs before it,
and its weights are others, so the signs that it would read there by itself are others too. It must
not know what is measured.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper

from bricks.graph.signs import SignPattern

INPUT_SIGNS = "input signs"


def input_signs(elements: int, pattern: SignPattern, seed: int) -> onnx.ModelProto:
    """A model that gives ``elements`` float32 numbers signs of this ``pattern``."""
    shape = [elements]
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["in"], ["size"]),
            helper.make_node("Mul", ["size", "signs"], ["out"]),
        ],
        "input_signs",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        initializer=[numpy_helper.from_array(pattern.signs(elements, seed), "signs")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
