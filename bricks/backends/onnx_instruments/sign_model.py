"""Signs, or numbers, as in a model, written before operators whose time depends on them.

See ``graph.sketch``. The walk that measures a brick does not hold all that its model runs before
it, and its weights are others, so the numbers that it would read there by itself are others too. It
must not know what is measured.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bricks.graph.sketch import Sketch, pattern

INPUT_SIGNS = "input signs"


def input_signs(elements: int, sketch: Sketch, seed: int) -> onnx.ModelProto:
    """A model that gives ``elements`` float32 numbers the signs of a ``sketch``, or its sizes."""
    shape = [elements]
    nodes = [helper.make_node("Abs", ["in"], ["size"])]
    held = {}
    if sketch.log_size is None:
        negative, changes = sketch.negative or 0.0, sketch.changes or 0.0
        held["signs"] = pattern(elements, negative, changes, seed)
    else:
        nodes.append(helper.make_node("Clip", ["size", "one", "one"], ["ones"]))
        held |= {
            "one": np.ones((), np.float32),
            "signs": sketch.drawn(np.ones(elements, np.float32), seed),
        }
    nodes.append(helper.make_node("Mul", [*nodes[-1].output, "signs"], ["out"]))
    graph = helper.make_graph(
        nodes,
        "input_signs",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        initializer=[numpy_helper.from_array(v, name) for name, v in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
