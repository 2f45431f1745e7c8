from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value
from onnx import TensorProto, helper
from tiers import slow_but

from bricks import Bench
from bricks.measure.conditions import Conditions, StopRule

X = value("x", [2, 4])
WEIGHT = constant("w", np.linspace(-1, 1, 16).reshape(4, 4), "FLOAT")


def branches() -> onnx.ModelProto:
    """If, whose branches use values and weights from outside."""
    outputs = [value("b", [2, 4])]
    then = helper.make_graph([node("MatMul", ["a", "w"], ["b"])], "then", [], outputs)
    other = helper.make_graph([node("Neg", ["a"], ["b"])], "else", [], outputs)
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("ReduceSum", ["a"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(nodes, [X], [value("y", [2, 4])], [WEIGHT, constant("zero", 0.0, "FLOAT")])


def loop() -> onnx.ModelProto:
    """Loop, which carries a value and uses a weight from outside."""
    body = helper.make_graph(
        [node("MatMul", ["carried", "w"], ["next"]), node("Identity", ["go"], ["still"])],
        "body",
        [value("i", [], "INT64"), value("go", [], "BOOL"), value("carried", [2, 4])],
        [value("still", [], "BOOL"), value("next", [2, 4])],
    )
    nodes = [node("Loop", ["times", "yes", "x"], ["y"], body=body)]
    constants = [WEIGHT, constant("times", 3), constant("yes", True, "BOOL")]
    return model(nodes, [X], [value("y", [2, 4])], constants)


def data_dependent() -> onnx.ModelProto:
    """NonZero: how many rows come out depends on the data."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("NonZero", ["mask"], ["where"]),
        node("Transpose", ["where"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["y"]),
    ]
    return model(nodes, [X], [value("y", ["found"])], [constant("zero", 0.0, "FLOAT")])


def computed_shape() -> onnx.ModelProto:
    """A Reshape whose target is computed from another value's shape."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]),
        node("Shape", ["t"], ["shape"]),
        node("Reshape", ["x", "shape"], ["r"]),
        node("Add", ["r", "t"], ["y"]),
    ]
    return model(nodes, [X], [value("y", [4, 2])])


def shared_weight() -> onnx.ModelProto:
    """One weight used twice, and an intermediate value that is an output."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    return model(nodes, [X], [value("y", [2, 4]), value("b", [2, 4])], [WEIGHT])


def halves() -> onnx.ModelProto:
    """Float16 throughout."""
    weight = constant("w", np.linspace(-1, 1, 16).reshape(4, 4), "FLOAT16")
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Softmax", ["a"], ["y"])]
    return model(nodes, [value("x", [2, 4], "FLOAT16")], [value("y", [2, 4], "FLOAT16")], [weight])


def embedding() -> onnx.ModelProto:
    """Token numbers that must lie within a table, and a mask."""
    table = constant("table", np.linspace(-1, 1, 40).reshape(10, 4), "FLOAT")
    nodes = [
        node("Gather", ["table", "ids"], ["a"]),
        node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["m", "axes"], ["u"]),
        node("Mul", ["a", "u"], ["y"]),
    ]
    inputs = [value("ids", [1, 6], "INT64"), value("mask", [1, 6], "INT64")]
    return model(nodes, inputs, [value("y", [1, 6, 4])], [table, constant("axes", [2])])


def unnamed() -> onnx.ModelProto:
    """Nodes without names, one of them with an output that nobody reads."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    return model(nodes, [X], [value("y", [2, 2])], opset=18)


def weights_inside() -> onnx.ModelProto:
    """If, whose branches hold weights: an initializer and a Constant, too large to stay inline."""
    outputs = [value("b", [2, 600])]
    given = constant("k", np.linspace(-1, 1, 600), "FLOAT")
    then = helper.make_graph([node("Add", ["a", "k"], ["b"])], "then", [], outputs, [given])
    inside = node("Constant", [], ["k"], value=constant("", np.linspace(1, 2, 600), "FLOAT"))
    # Folding makes one more weight inside, which the source does not have.
    nodes = [inside, node("Exp", ["k"], ["e"]), node("Mul", ["a", "e"], ["b"])]
    other = helper.make_graph(nodes, "else", [], outputs)
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [value("x", [2, 600]), value("yes", [], "BOOL")]
    return model(nodes, inputs, [value("y", [2, 600])])


def unread_weight() -> onnx.ModelProto:
    """A large weight that no node reads, as editing scripts leave them behind."""
    unread = constant("unread", np.linspace(-1, 1, 600), "FLOAT")
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [X], [value("y", [2, 4])], [WEIGHT, unread])


def computed_trips(times: int = 5) -> onnx.ModelProto:
    """Loop, whose trip count is computed from an input (which is at most 1)."""
    body = helper.make_graph(
        [node("MatMul", ["carried", "w"], ["next"]), node("Identity", ["go"], ["still"])],
        "body",
        [value("i", [], "INT64"), value("go", [], "BOOL"), value("carried", [2, 4])],
        [value("still", [], "BOOL"), value("next", [2, 4])],
    )
    nodes = [
        node("Min", ["n", "zero"], ["nothing"]),
        node("Add", ["nothing", "times"], ["trips"]),
        node("Loop", ["trips", "yes", "x"], ["y"], body=body),
    ]
    constants = [
        WEIGHT, constant("zero", 0), constant("times", times), constant("yes", True, "BOOL"),
    ]  # fmt: skip
    return model(nodes, [X, value("n", [], "INT64")], [value("y", [2, 4])], constants)


def quantised() -> onnx.ModelProto:
    """A product with a weight of 8 bits, quantised before and after."""
    weight = constant("w", np.arange(4096).reshape(64, 64) % 255 - 127, "INT8")
    scales = [constant(name, 0.02, "FLOAT") for name in ("sx", "sw", "sy")]
    zeros = [constant("zx", 3, "UINT8"), constant("zw", 0, "INT8"), constant("zy", 5, "UINT8")]
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["dw"]),
        node("MatMul", ["dx", "dw"], ["p"]),
        node("QuantizeLinear", ["p", "sy", "zy"], ["qp"]),
        node("DequantizeLinear", ["qp", "sy", "zy"], ["y"]),
    ]
    return model(nodes, [value("x", [2, 64])], [value("y", [2, 64])], [weight, *scales, *zeros])


MODELS = [
    branches, loop, data_dependent, computed_shape, shared_weight, halves, embedding, unnamed,
    weights_inside, unread_weight, computed_trips, quantised,
]  # fmt: skip


# Measured in one round: what is of interest is that it can be.
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


@pytest.fixture(
    scope="module", params=slow_but(lambda cut: cut == "executed", ["executed", "1", "3"])
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with Bench(
        tmp_path_factory.mktemp("cache"), granularity=request.param, threads=1, conditions=ONCE
    ) as made:
        yield made


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_bricks_chained_give_the_models_outputs_and_can_be_measured(
    bench: Bench, make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    read = bench.read(save(make(), tmp_path, f"{make.__name__}.onnx"))
    result = bench.verify(read)
    assert result.difference.finite
    assert result.own_weights
    assert result.exact or result.difference.max_rel < 1e-5
    assert result.exact or bench.workspace.options.granularity != "executed"
    done = bench.measure([read])
    assert [f.reason for f in done.failures] == []
    assert done.unfinished == 0
    assert bench.predict(read, measure=False).coverage == 1.0


def test_loops_that_compute_other_trip_counts_are_other_bricks(
    bench: Bench, tmp_path: Path
) -> None:
    def loops(times: int) -> dict[str, tuple[int, ...]]:
        read = bench.read(save(computed_trips(times), tmp_path, f"{times}.onnx"))
        bricks = bench.decompose(read).bricks.values()
        return {
            b.key: tuple(v) for b in bricks if "Loop" in b.operators for v in b.examples.values()
        }

    few, many = loops(4), loops(1024)
    assert (list(few.values()), list(many.values())) == ([(4,)], [(1024,)])
    assert few.keys().isdisjoint(many)


PACKED_TYPES = {"INT4": 21, "UINT4": 21, "FLOAT8E4M3FN": 21, "INT2": 25, "UINT2": 25}


@pytest.mark.parametrize("shape", [(64, 64), (51, 51), (3, 3), ()], ids=str)
@pytest.mark.parametrize("dtype", PACKED_TYPES)
def test_constants_of_few_bits_are_exact_as_weights_and_as_outputs(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    """(64, 64) and (51, 51) lie outside the executed model; an odd number leaves a part byte."""
    values = np.arange(np.prod(shape, dtype=int)) % 2
    weight = helper.make_tensor("w", getattr(TensorProto, dtype), shape, values)
    nodes = [node("DequantizeLinear", ["w", "s"], ["d"]), node("Add", ["x", "d"], ["y"])]
    outputs = [value("y", list(shape)), value("w", list(shape), dtype)]
    scale, opset = constant("s", 0.1, "FLOAT"), PACKED_TYPES[dtype]
    proto = model(nodes, [value("x", list(shape))], outputs, [weight, scale], opset=opset,
                  ir_version=11)  # fmt: skip
    with Bench(tmp_path / "cache", threads=1) as bench:
        result = bench.verify(bench.read(save(proto, tmp_path, "few_bits.onnx")))
    assert result.exact
    assert result.own_weights
