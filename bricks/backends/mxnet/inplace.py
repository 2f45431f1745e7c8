"""Which inputs MXNet's layers write over: what their registrations (``FInplaceOption``) allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bricks.backends.inplace import Rules, in_place_values
from bricks.graph.graph import Graph

_FIRST = (
    "Abs", "Ceil", "Clip", "Cos", "Dropout", "Erf", "Exp", "Floor", "Identity", "Log", "LogSoftmax",
    "Neg", "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Softsign",
    "Sqrt", "Tanh",
)  # fmt: skip
_EITHER = ("Add", "Div", "Mul", "Sub")

# Views are none: what is seen in another shape loses its blocked layout, which is a copy.
RULES = Rules(
    views=(),
    overwrites={
        **{("", operator): (0,) for operator in _FIRST},
        **{("", operator): (0, 1) for operator in _EITHER},
    },
)


def in_place_groups(graph: Graph, groups: Sequence[tuple[int, ...]]) -> dict[str, str]:
    """As :func:`in_place_values`, where each of ``groups`` is one layer.

    A convolution that is fused with a sum adds its result to the other summand, where that lies.
    """
    found = in_place_values(graph, RULES)
    left = Counter(name for node in graph.nodes for name in node.input)
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers}
    for group in groups:
        nodes = [graph.nodes[position] for position in group]
        made = {name for node in nodes for name in node.output}
        output = nodes[-1].output[0]
        for node in nodes if len(nodes) > 1 and output not in fixed else ():
            for name in node.input if node.op_type == "Add" else ():
                same = graph.types.get(name) == graph.types[output]
                if same and left[name] == 1 and name not in made | fixed:
                    found[output] = name
    return found
