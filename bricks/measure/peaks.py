"""Peaks: two bricks that show how fast a machine computes, and how fast its memory is, at most.

A roofline (Williams et al., Communications of the ACM, 2009) needs both figures of the machine.
They are measured like any brick, with the same runtime and threads, so that what a model's bricks
reach is held against what this runtime reaches at best, and not against a data sheet. A brick may
reach more: the caches are faster than the memory, and other numbers than 32-bit floats may be.
"""

from __future__ import annotations

from functools import cache

from onnx import TensorProto, helper

from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.view import graph_of

# A product of so large matrices computes for long on what the caches hold; copying so many bytes
# is more than caches hold, and little enough for any machine.
_ROWS = 1024
_STREAMED = 1 << 24


@cache
def compute_peak() -> Brick:
    """The product of two matrices of 32-bit floats, one of them a weight."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[_ROWS, _ROWS])
    weight.data_location = TensorProto.EXTERNAL
    return _brick("MatMul", ["x", "w"], (_ROWS, _ROWS), weight)


@cache
def memory_peak() -> Brick:
    """What reads 64 MiB of 32-bit floats and writes as many."""
    return _brick("Relu", ["x"], (_STREAMED,))


def peak_bricks() -> tuple[Brick, ...]:
    """Both."""
    return compute_peak(), memory_peak()


def _brick(
    operator: str, inputs: list[str], shape: tuple[int, ...], *weights: TensorProto
) -> Brick:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    node = helper.make_node(operator, inputs, ["y"])
    graph = helper.make_graph([node], "peak", values[:1], values[1:], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Cutter(graph_of(model)).cut((0,)).brick
