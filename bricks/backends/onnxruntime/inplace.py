"""Which outputs ONNX Runtime lets share the memory of an input.

Its allocation planner is not open to callers, so the rules of its kernels' registrations stand
here: views never move data (a Reshape costs nothing inside a model, and a copy outside of it), and
element-wise kernels write over an input that nobody else reads. Getting one wrong changes where a
brick's output lies while it is measured, never what it computes.
"""

from __future__ import annotations

from collections import Counter

import onnx

from bricks.graph.graph import Graph
from bricks.graph.topology import used_values

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})

# Operators by the inputs that the first output may overwrite.
_UNARY = (
    "Abs", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus",
    "Softsign", "Sqrt", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_BINARY = ("Add", "Div", "Mul", "Sub", "Sum", "Max", "Min", "Pow", "And", "Or", "Xor")
OVERWRITES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_UNARY, (0,)),
    **dict.fromkeys(_BINARY, (0, 1)),
}


def in_place_values(graph: Graph) -> dict[str, str]:
    """Values by the value whose memory they take."""
    readers = Counter(name for node in graph.nodes for name in used_values(node))
    # The caller owns the memory of inputs and outputs, and weights are kept.
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers}
    shared = {}
    for node in graph.nodes:
        if not node.output or not node.output[0] or node.output[0] in fixed:
            continue
        output = node.output[0]
        for position in _candidates(node):
            source = node.input[position] if position < len(node.input) else ""
            if not source or source in fixed:
                continue
            same_size = graph.types[source].size_bytes == graph.types[output].size_bytes
            if same_size and (node.op_type in VIEWS or readers[source] == 1):
                shared[output] = source
                break
    return shared


def _candidates(node: onnx.NodeProto) -> tuple[int, ...]:
    if node.op_type in VIEWS:
        return (0,)
    if node.op_type == "Conv" and node.domain == "com.microsoft.nchwc":
        return (3,)  # the summand of a fused residual connection
    return OVERWRITES.get(node.op_type, ())
