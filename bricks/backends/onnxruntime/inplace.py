"""Outputs that ONNX Runtime computes in place, in the memory of an input.

The allocation planner has no public interface, so this module repeats the rules of its kernel
registrations: views never move data (a Reshape costs nothing inside a model, and a copy outside of
it), and some kernels overwrite an input that has no further readers. A test compares these rules
with the memory that the runtime allocates. A wrong rule changes the location of a brick's output
during measurement, never the result. Must not know measuring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, default_domain

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

# Operators, with their domain, whose first output is a view of the first input.
VIEWS = frozenset(("", op) for op in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
# The inputs that the first output may overwrite; arithmetic (Add, Mul, Sqrt) overwrites none.
_ELEMENTWISE = (
    "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu",
    "ScatterElements", "Selu", "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu", "Trilu",
)  # fmt: skip
OVERWRITES: dict[tuple[str, str], tuple[int, ...]] = {
    **{("", op): (0,) for op in _ELEMENTWISE},
    # The summand of a fused residual connection.
    ("com.microsoft", "FusedConv"): (3,),
    ("com.microsoft", "NhwcFusedConv"): (3,),
    ("com.microsoft.nchwc", "Conv"): (3,),
}


def in_place_values(graph: Graph) -> dict[str, str]:
    """A mapping of values to the values whose memory they reuse.

    As the runtime's planner does, this counts, node by node in execution order, the remaining
    readers of each buffer, summed over the values that share it.
    """
    readers = Counter(name for node in graph.nodes for name in _reads(node))
    # The caller owns the memory of inputs and outputs, and weights must persist.
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers}
    owner: dict[str, str] = {}  # values by the first value that had their memory
    shared = {}
    for node in graph.nodes:
        output = node.output[0] if node.output else ""
        source = _source(node, graph, fixed, readers, owner) if output not in fixed else ""
        if output and source:
            shared[output] = source
            owner[output] = owner.get(source, source)
            readers[owner[output]] += readers[output]
        for name in _reads(node):
            readers[owner.get(name, name)] -= 1
    return shared


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values that ``node`` reads, once per port, since the planner counts ports."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def _source(
    node: onnx.NodeProto,
    graph: Graph,
    fixed: set[str],
    readers: Counter[str],
    owner: dict[str, str],
) -> str:
    """The input whose memory the first output of ``node`` reuses; empty if there is none."""
    kind = (default_domain(node.domain), node.op_type)
    view = kind in VIEWS
    for position in (0,) if view else OVERWRITES.get(kind, ()):
        source = node.input[position] if position < len(node.input) else ""
        if not source or source in fixed:
            continue
        before, after = graph.types[source], graph.types[node.output[0]]
        if not _same_size(before, after):
            continue
        if view or readers[owner.get(source, source)] == 1:
            return source
    return ""


def _same_size(before: ValueType, after: ValueType) -> bool:
    tensors = isinstance(before, TensorType) and isinstance(after, TensorType)
    known = tensors and "STRING" not in (before.dtype, after.dtype)
    return known and before.size_bytes == after.size_bytes
