"""The probe set: synthetic bricks that show how latencies change between states of a machine.

Models have bricks that were measured in one state and are needed in another. The correction between
states is learned from bricks that were measured in both (:mod:`bricks.samples.state_model`), which
are few, and of few kernels, until many models were measured again. So some dozens of synthetic
bricks, over kernels and sizes, are measured in each state. A machine of one state never needs them.
Their walk passes each brick a region of memory that the brick before it has just written, on the
same cores: states differ mostly in the cost of reading it. Must not know when the probe set is
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from onnx import helper

from bricks.measure.rounds import StopRule
from bricks.measure.synthetic_bricks import convolution, product, synthetic_brick
from bricks.measure.walk import Load, Walk, WalkStep

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# Few rounds show a change of a tenth, and take less than a second.
RULE = StopRule(precision=0.03, min_rounds=4, max_rounds=8)

# Channels read and written, pixels in a row, taps in a row, groups.
_CONVOLUTIONS = (
    (16, 32, 14, 1, 1), (32, 64, 28, 1, 1), (64, 64, 56, 1, 1), (256, 256, 14, 1, 1),
    (256, 512, 28, 1, 1),
    (3, 16, 64, 3, 1), (16, 16, 14, 3, 1), (32, 32, 28, 3, 1), (64, 64, 28, 3, 1),
    (64, 64, 56, 3, 1), (128, 128, 56, 3, 1),
    (32, 32, 14, 3, 32), (96, 96, 28, 3, 96), (64, 64, 56, 3, 64), (64, 64, 28, 3, 4),
)  # fmt: skip
# Rows, terms and columns.
_PRODUCTS = (
    (1, 64, 64), (1, 512, 512), (1, 1024, 2048), (16, 128, 128), (64, 256, 256), (128, 64, 128),
    (256, 512, 512),
)  # fmt: skip
# Operators on one value, their attributes, and its shape.
_ON_ONE: tuple[tuple[str, Mapping[str, Any], tuple[int, ...]], ...] = (
    ("Relu", {}, (16,)),
    ("Relu", {}, (1, 64, 28, 28)),
    ("Sigmoid", {}, (1, 128, 28, 28)),
    ("Softmax", {}, (1, 16)),
    ("Softmax", {}, (4, 64, 64)),
    ("Softmax", {}, (12, 128, 128)),
    ("Transpose", {"perm": [1, 0]}, (64, 64)),
    ("Transpose", {"perm": [0, 2, 1, 3]}, (1, 128, 12, 64)),
    ("Transpose", {"perm": [0, 2, 3, 1]}, (1, 64, 56, 56)),
    ("ReduceMean", {"axes": [-1]}, (128, 256)),
    ("ReduceMean", {"axes": [-1]}, (1024, 512)),
    ("GlobalAveragePool", {}, (1, 256, 14, 14)),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}, (1, 64, 56, 56)),
    ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, (1, 64, 28, 28)),
)
# Elements of sums and products of two values.
_ON_TWO = (16, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21)

_ALIGNED = 256


@cache
def probe_set() -> tuple[Brick, ...]:
    """The bricks of the probe set, ordered by size, so that each reads much of what was written."""
    bricks = [convolution(*shape, group=groups) for *shape, groups in _CONVOLUTIONS]
    bricks += [product(*shape) for shape in _PRODUCTS]
    for operator, attributes, shape in _ON_ONE:
        node = helper.make_node(operator, ["x"], ["y"], **attributes)
        bricks.append(synthetic_brick(node, [shape]))
    for number, count in enumerate(_ON_TWO):
        node = helper.make_node("Mul" if number % 2 else "Add", ["x", "z"], ["y"])
        bricks.append(synthetic_brick(node, [(count,), (count,)]))
    return tuple(sorted(bricks, key=lambda brick: (brick.bytes_moved, brick.key)))


@cache
def probe_set_keys() -> tuple[str, ...]:
    """The keys of the probe set, in order."""
    return tuple(brick.key for brick in probe_set())


def probe_set_walk(avoid: Iterable[str] = ()) -> Walk:
    """The walk over the probe set without the bricks to ``avoid``.

    Two regions alternate: a brick reads one and writes the other.
    """
    bricks = [brick for brick in probe_set() if brick.key not in set(avoid)]
    size = max((_extent(types) for b in bricks for types in (b.inputs, b.outputs)), default=0)
    steps, loads = [], []
    for number, brick in enumerate(bricks):
        reads, writes = (0, size) if number % 2 else (size, 0)
        steps.append(
            WalkStep(
                f"probe/{number}",
                brick.key,
                _offsets(brick.inputs, reads),
                _offsets(brick.outputs, writes),
                timed=True,
                position=number,
            )
        )
        loads.append(Load(brick.key, brick.model, False, 0, brick.numeric_weight_bytes))
    return Walk(tuple(loads), tuple(steps), 2 * size)


def _offsets(types: Mapping[str, Any], begin: int) -> tuple[int, ...]:
    offsets = []
    for type_ in types.values():
        offsets.append(begin)
        begin += _aligned(type_.size_bytes)
    return tuple(offsets)


def _extent(types: Mapping[str, Any]) -> int:
    return sum(_aligned(type_.size_bytes) for type_ in types.values())


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNED) * _ALIGNED
