"""The panel: bricks that show how latencies change between the states of a machine.

Models have bricks that were measured in one state and are needed in another. The correction between
them is learned from bricks that were measured in both (:mod:`bricks.samples.state_model`), which
are few, and of few kernels, until many models were measured again. So some dozens of synthetic
bricks, over kernels and sizes, are measured in each state. A machine of one state never needs them.
Their walk passes each brick a region of memory that the brick before it has just written, on the
cores that it ran on: what differs between states is mostly the cost of that. Must not know when the
panel is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.view import graph_of
from bricks.measure.rounds import StopRule
from bricks.measure.walk import Load, Step, Walk
from bricks.samples.machine_state import SAME_STATE_FACTOR, same_state
from bricks.samples.measurement import Measurement
from bricks.samples.state_model import MAX_LEARNED, SizeFacts, StateModel
from bricks.store import Reading

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
def panel() -> tuple[Brick, ...]:
    """The bricks of the panel, about in order of size, so that neighbours read what was written."""
    found = [_convolution(*shape) for shape in _CONVOLUTIONS]
    found += [_product(*shape) for shape in _PRODUCTS]
    found += [_brick(helper.make_node(o, ["x"], ["y"], **a), [s]) for o, a, s in _ON_ONE]
    for number, count in enumerate(_ON_TWO):
        node = helper.make_node("Mul" if number % 2 else "Add", ["x", "z"], ["y"])
        found.append(_brick(node, [(count,), (count,)]))
    return tuple(sorted(found, key=lambda brick: (brick.bytes_moved, brick.key)))


@cache
def panel_keys() -> tuple[str, ...]:
    """The keys of the panel, in order."""
    return tuple(brick.key for brick in panel())


def panel_walk(avoid: Iterable[str] = ()) -> Walk:
    """The walk over the panel without the bricks to ``avoid``.

    Two regions take turns: a brick reads the one and writes the other.
    """
    bricks = [brick for brick in panel() if brick.key not in set(avoid)]
    size = max((_extent(types) for b in bricks for types in (b.inputs, b.outputs)), default=0)
    steps, loads = [], []
    for number, brick in enumerate(bricks):
        reads, writes = (0, size) if number % 2 else (size, 0)
        steps.append(
            Step(
                f"panel/{number}",
                brick.key,
                _offsets(brick.inputs, reads),
                _offsets(brick.outputs, writes),
                timed=True,
                position=number,
            )
        )
        loads.append(Load(brick.key, brick.model, False, 0, brick.numeric_weight_bytes))
    return Walk(tuple(loads), tuple(steps), 2 * size)


def several_states(counts: Mapping[float, int], state_s: float) -> bool:
    """Whether the machine has other states than this, by the rounds taken at each reference."""
    others = sum(n for reference_s, n in counts.items() if not same_state(reference_s, state_s))
    return others >= max(_MIN_ROUNDS, _MIN_SHARE * sum(counts.values()))


# Fewer rounds than these, or a smaller share of all, may be a moment of drift, and no state.
_MIN_ROUNDS, _MIN_SHARE = 30, 0.02


def learn_states(store: Reading, target_key: str) -> StateModel:
    """How latencies change on a target: from all bricks that were measured in several states."""
    found = set(store.measurements.keys_in_states(target_key, SAME_STATE_FACTOR))
    first = [key for key in panel_keys() if key in found] if found else []
    # Keys are digests: the first of them are a random sample.
    others = sorted(key for key in found.difference(first) if key.startswith("b1-"))
    keys = [*first, *others][:MAX_LEARNED]
    results = store.measurements.results(target_key, keys)
    measured = [m for m in results.values() if isinstance(m, Measurement)]
    return StateModel(measured, size_facts(store.plans.load_bricks(keys)))


def size_facts(bricks: Mapping[str, Brick]) -> dict[str, SizeFacts]:
    """The facts of bricks that decide how their latencies change."""
    # Here, since nothing of it is needed on a machine of one state.
    from bricks.predict.features import extract_features

    return {key: extract_features(brick).size_facts for key, brick in bricks.items()}


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


def _convolution(read: int, written: int, side: int, taps: int, groups: int) -> Brick:
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"],
        kernel_shape=[taps, taps], pads=[taps // 2] * 4, group=groups,
    )  # fmt: skip
    return _brick(node, [(1, read, side, side)], _weight([written, read // groups, taps, taps]))


def _product(rows: int, terms: int, columns: int) -> Brick:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return _brick(node, [(rows, terms)], _weight([terms, columns]))


def _weight(shape: list[int]) -> TensorProto:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    weight.data_location = TensorProto.EXTERNAL
    return weight


def _brick(node: NodeProto, read: Sequence[Sequence[int]], *weights: TensorProto) -> Brick:
    held = {weight.name for weight in weights}
    names = [name for name in node.input if name not in held]
    inputs = [_value(name, shape) for name, shape in zip(names, read, strict=True)]
    written = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "panel", inputs, [written], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    # Inference gives the shape of the output, which follows from the others.
    return Cutter(graph_of(shape_inference.infer_shapes(model))).cut((0,)).brick


def _value(name: str, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
