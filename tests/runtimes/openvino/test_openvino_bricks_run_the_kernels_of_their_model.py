from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import runtime_environments
from factories import constant, model, node, save, value
from quantising import quantise
from refusals import refused

from bricks import BackendError, Bench, IncompleteEstimate, WorkerError
from bricks.backends import describe
from bricks.decompose.plan import Decomposition
from bricks.graph.model_metadata import noted_layouts, noted_other_kernels
from bricks.graph.view import parse_model

QUANTISING = ("QuantizeLinear", "DequantizeLinear")
# Convolutions in sequence, in parallel and depthwise, a shuffle of channels, attention.
NAMES = ("gluon_cifar_resnet20_v1", "gluon_mobilenetv2_05", "gluon_squeezenet11", "bert_mini")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    runtime_environments.python("openvino")
    with Bench(tmp_path_factory.mktemp("cache"), runtime="openvino", threads=1) as made:
        yield made


@pytest.fixture(scope="module")
def bfloat16(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    runtime_environments.python("openvino")
    try:
        describe("openvino-bf16")
    except BackendError as exc:  # the processor
        pytest.skip(str(exc))
    with Bench(tmp_path_factory.mktemp("bf16"), runtime="openvino-bf16", threads=1) as made:
        yield made


def weight(name: str, *shape: int) -> onnx.TensorProto:
    # OpenVINO merges products of one value with equal weights.
    values = np.random.default_rng([*name.encode()]).standard_normal(shape) / np.sqrt(
        np.prod(shape[1:]) or 1
    )
    return constant(name, values, "FLOAT")


def conv(x: str, weights: str, y: str, pad: int = 1) -> onnx.NodeProto:
    return node("Conv", [x, weights], [y], pads=[pad] * 4)


def images(*nodes: onnx.NodeProto, channels: int) -> onnx.ModelProto:
    """``nodes`` from ``b`` to ``e``, between convolutions; a pooling halves the image."""
    return model(
        [
            conv("x", "w0", "a"),
            node("Relu", ["a"], ["b"]),
            *nodes,
            node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
            conv("f", "w2", "y", pad=0),
        ],
        [value("x", [1, 3, 32, 32])],
        [value("y", [1, 8, 16, 16])],
        [weight("w0", 32, 3, 3, 3), weight("w1", 32, 32, 3, 3), weight("w2", 8, channels, 1, 1)],
    )


def residual() -> onnx.ModelProto:
    """A block whose convolution adds in place, before a pooling."""
    added = node("Add", ["c", "b"], ["d"])
    return images(conv("b", "w1", "c"), added, node("Relu", ["d"], ["e"]), channels=32)


def dense() -> onnx.ModelProto:
    """Two convolutions in parallel, whose results are concatenated."""
    return images(conv("b", "w1", "c"), node("Concat", ["b", "c"], ["e"], axis=1), channels=64)


def gelu() -> onnx.ModelProto:
    """A GELU as exporters write it, after a reshape whose shape is computed."""
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Concat", ["n", "rest"], ["t"], axis=0),
            node("MatMul", ["x", "w"], ["m"]),
            node("Reshape", ["m", "t"], ["r"]),
            node("Div", ["r", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Add", ["e", "one"], ["p"]),
            node("Mul", ["r", "p"], ["q"]),
            node("Mul", ["q", "half"], ["y"]),
        ],
        [value("x", [4, 64])],
        [value("y", [4, 16, 16])],
        [
            weight("w", 64, 256),
            constant("zero", [0]),
            constant("rest", [16, 16]),
            constant("root", 2**0.5, "FLOAT"),
            constant("one", 1.0, "FLOAT"),
            constant("half", 0.5, "FLOAT"),
        ],
    )


def attention() -> onnx.ModelProto:
    """The scores of attention, scaled behind the products, with a mask of zeros from a shape."""
    nodes = [node("ConstantOfShape", ["mask_shape"], ["mask"])]
    for part in "qk":
        last = (1, 3) if part == "q" else (3, 1)
        nodes += [
            node("MatMul", ["x", f"w{part}"], [f"{part}0"]),
            node("Add", [f"{part}0", f"b{part}"], [f"{part}1"]),
            node("Reshape", [f"{part}1", "heads"], [f"{part}2"]),
            node("Transpose", [f"{part}2"], [f"{part}3"], perm=[0, 2, *last]),
            node("Mul", [f"{part}3", "scale"], [f"{part}4"]),
        ]
    nodes += [
        node("MatMul", ["q4", "k4"], ["s"]),
        node("Add", ["s", "mask"], ["m"]),
        node("Softmax", ["m"], ["p"]),
        node("Mul", ["p", "p"], ["y"]),
    ]
    return model(
        nodes,
        [value("x", [1, 64, 128])],
        [value("y", [1, 2, 64, 64])],
        [
            *(weight(f"w{part}", 128, 128) for part in "qk"),
            *(weight(f"b{part}", 128) for part in "qk"),
            constant("heads", [1, 64, 2, 64]),
            constant("mask_shape", [1, 1, 64, 64]),
            constant("scale", 0.35, "FLOAT"),
        ],
    )


def masked() -> onnx.ModelProto:
    """Two softmaxes over scores with one mask, which is selected by a condition."""
    return model(
        [
            node("And", ["c", "d"], ["e"]),
            node("Where", ["e", "zero", "low"], ["mask"]),
            node("Add", ["x", "mask"], ["a"]),
            node("Softmax", ["a"], ["s"]),
            node("Add", ["s", "mask"], ["b"]),
            node("Softmax", ["b"], ["y"]),
        ],
        [
            value("x", [1, 2, 32, 32]),
            value("c", [1, 1, 32, 32], "BOOL"),
            value("d", [1, 1, 1, 32], "BOOL"),
        ],
        [value("y", [1, 2, 32, 32])],
        [constant("zero", 0.0, "FLOAT"), constant("low", -1e9, "FLOAT")],
    )


def normalised(scale: onnx.TensorProto, shift: onnx.TensorProto) -> onnx.ModelProto:
    """Two normalisations with these parameters; three nodes read the result of the first."""
    return model(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("LayerNormalization", ["a", "scale", "shift"], ["b"]),
            node("MatMul", ["b", "w1"], ["c"]),
            node("Sigmoid", ["c"], ["d"]),
            node("MatMul", ["b", "w2"], ["e"]),
            node("Mul", ["d", "e"], ["f"]),
            node("MatMul", ["f", "w3"], ["g"]),
            node("Add", ["g", "b"], ["h"]),
            node("LayerNormalization", ["h", "scale", "shift"], ["y"]),
        ],
        [value("x", [32, 64])],
        [value("y", [32, 64])],
        [*(weight(f"w{n}", 64, 64) for n in range(4)), scale, shift],
    )


def recurrent() -> onnx.ModelProto:
    """Two recurrent layers; the second one's outputs of each step have no reader."""
    layer = {"hidden_size": 32, "linear_before_reset": 1}
    return model(
        [
            node("Transpose", ["x"], ["a"], perm=[1, 0, 2]),
            node("GRU", ["a", "w0", "r0", "b0", "", "h0"], ["b", "s0"], **layer),
            node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3]),
            node("Reshape", ["c", "shape"], ["d"]),
            node("GRU", ["d", "w1", "r1", "b1", "", "h1"], ["unread", "s1"], **layer),
            node("Concat", ["s0", "s1"], ["s"], axis=0),
            node("Gather", ["s", "last"], ["t"], axis=0),
            node("Gemm", ["t", "w2", "b2"], ["y"]),
        ],
        [value("x", [8, 12, 16])],
        [value("y", [8, 24])],
        [
            *(weight(f"w{n}", 1, 96, width) for n, width in enumerate((16, 32))),
            *(weight(f"r{n}", 1, 96, 32) for n in range(2)),
            *(weight(f"b{n}", 1, 192) for n in range(2)),
            *(weight(f"h{n}", 1, 8, 32) for n in range(2)),
            weight("w2", 32, 24),
            weight("b2", 24),
            constant("shape", [12, 8, 32]),
            constant("last", 1),
        ],
    )


def shared_product(width: int = 64) -> onnx.ModelProto:
    """Two products that OpenVINO merges, since their weights happen to be equal, and two more.

    The last is of this width.
    """
    same = weight("w", 12, 12)
    again = onnx.TensorProto()
    again.CopyFrom(same)
    again.name = "v"
    return model(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("LpNormalization", ["a"], ["b"]),
            node("MatMul", ["b", "w"], ["c"]),
            node("MatMul", ["b", "v"], ["d"]),
            node("Sigmoid", ["d"], ["e"]),
            node("Mul", ["c", "e"], ["f"]),
            node("LpNormalization", ["f"], ["g"]),
            node("MatMul", ["g", "w1"], ["y"]),
        ],
        [value("x", [64, 64])],
        [value("y", [64, width])],
        [weight("w0", 64, 12), same, again, weight("w1", 12, width)],
    )


def decomposed(bench: Bench, proto: onnx.ModelProto, folder: Path) -> Decomposition:
    read = bench.read(save(proto, folder, "model.onnx"))
    result = bench.verify(read)
    assert result.difference.finite and result.difference.within_tolerance
    return bench.decompose(read)


def operators(made: Decomposition) -> list[tuple[str, ...]]:
    return [made.bricks[o.brick].operators for o in made.plan.occurrences]


def test_a_value_has_the_layout_of_its_model(bench: Bench, tmp_path: Path) -> None:
    made = decomposed(bench, residual(), tmp_path)
    noted = [noted_layouts(parse_model(brick.model)) for brick in made.bricks.values()]
    assert any(layouts.get("i0") == "acdb" for layouts in noted)
    # Inputs and outputs of the model are as ONNX has them.
    first = made.bricks[made.plan.occurrences[0].brick]
    assert "i0" not in noted_layouts(parse_model(first.model))
    # The producer of an output is a brick like others.
    assert [set(names) for names in operators(made)[-2:]] == [{"MaxPool"}, {"Conv"}]


def test_a_group_that_runs_other_kernels_in_isolation_is_merged(
    bench: Bench, tmp_path: Path
) -> None:
    # In isolation, OpenVINO generates code for Add and Relu, but not behind a Conv.
    bricks = operators(decomposed(bench, residual(), tmp_path))
    assert ("Add", "Relu") not in bricks
    assert any(names[-3:] == ("Conv", "Add", "Relu") for names in bricks)


def test_patterns_of_certain_numbers_are_one_brick(bench: Bench, tmp_path: Path) -> None:
    bricks = operators(decomposed(bench, gelu(), tmp_path))
    assert any("Erf" in names for names in bricks)
    together = next(names for names in bricks if "Erf" in names)
    assert {"Div", "Erf", "Add", "Mul"} <= set(together)
    assert not any("Shape" in names for names in bricks), "constants are no bricks"


def test_another_number_is_another_brick(bench: Bench, tmp_path: Path) -> None:
    other = gelu()
    next(t for t in other.graph.initializer if t.name == "half").CopyFrom(
        constant("half", 0.25, "FLOAT")
    )
    first, second = (decomposed(bench, proto, tmp_path) for proto in (gelu(), other))
    assert first.bricks.keys() != second.bricks.keys()


def test_scales_belong_to_products_and_masks_of_zeros_are_dropped(
    bench: Bench, tmp_path: Path
) -> None:
    bricks = operators(decomposed(bench, attention(), tmp_path))
    assert len(bricks) == 5
    assert all("Mul" in names for names in bricks if "Reshape" in names)
    softmax = next(names for names in bricks if "Softmax" in names)
    assert "MatMul" not in softmax


def test_a_mask_that_several_read_is_computed_once(bench: Bench, tmp_path: Path) -> None:
    bricks = operators(decomposed(bench, masked(), tmp_path))
    assert {"And", "Where", "Add"} <= set(bricks[0])
    assert sum("Where" in names for names in bricks) == 1
    assert len(bricks) > 2


def test_scales_of_ones_are_part_of_a_brick(bench: Bench, tmp_path: Path) -> None:
    """OpenVINO drops them, so a normalisation alone would be another kernel with random ones."""
    ones, zeros = (
        constant(n, of(64), "FLOAT") for n, of in (("scale", np.ones), ("shift", np.zeros))
    )
    bricks = operators(decomposed(bench, normalised(ones, zeros), tmp_path))
    numbers = {"ConstantOfShape", "LayerNormalization"}
    # A brick of its own, though the kernel has no name of the node.
    assert sum(set(names) == numbers for names in bricks) == 2
    assert len(bricks) == 8


def test_other_scales_are_weights(bench: Bench, tmp_path: Path) -> None:
    made = normalised(weight("scale", 64), weight("shift", 64))
    made.graph.node[-1].output[0] = made.graph.output[0].name = (
        "other"  # values tell no models apart
    )
    bricks = operators(decomposed(bench, made, tmp_path))
    assert ("LayerNormalization",) in bricks
    assert not any("ConstantOfShape" in names for names in bricks)


def test_an_output_without_readers_is_omitted(bench: Bench, tmp_path: Path) -> None:
    made = decomposed(bench, recurrent(), tmp_path)
    assert made.plan.assumed == ()
    assert {name for names in operators(made) for name in names} >= {"GRU", "Gemm"}


def test_a_group_that_no_merging_helps_is_a_named_gap(bench: Bench, tmp_path: Path) -> None:
    read = bench.read(save(shared_product(), tmp_path, "shared.onnx"))
    (said,) = bench.decompose(read).plan.assumed
    assert "not measured" in said and "MatMul_c" in said
    measured = bench.measure([read])
    found = bench.predict(read)
    assert isinstance(found, IncompleteEstimate)
    (gap,) = found.gaps
    assert [failure.key for failure in measured.failures] == [gap.brick]
    assert "other kernels" in gap.reason and "MatMul" in gap.reason
    assert 0 < found.coverage < 1 and found.measured_s > 0
    assert gap.brick not in {share.brick for share in found.shares}


def test_a_gap_is_another_brick_than_the_same_nodes_in_a_measurable_brick(
    bench: Bench, tmp_path: Path
) -> None:
    other = shared_product(width=32)  # values alone do not tell models apart
    next(t for t in other.graph.initializer if t.name == "v").CopyFrom(weight("v", 12, 12))
    gap, whole = (
        bench.decompose(bench.read(save(proto, tmp_path, f"{n}.onnx")))
        for n, proto in enumerate((shared_product(), other))
    )
    assert whole.plan.assumed == ()
    told = {key for key, b in gap.bricks.items() if noted_other_kernels(parse_model(b.model))}
    assert len(told) == 1 and told.isdisjoint(whole.bricks)


@pytest.mark.slow
def test_a_stride_that_moves_to_another_convolution_takes_its_readers_along(bench: Bench) -> None:
    # Each stage begins with two convolutions of one pixel that leave out every other.
    made = bench.decompose(bench.read("gluon_resnet50_v1"))
    bricks = operators(made)
    assert len(bricks) > 30
    assert max(names.count("Conv") for names in bricks) < 10


def test_quantised_bricks_pass_integers_on(bench: Bench, tmp_path: Path) -> None:
    quantise(
        save(residual(), tmp_path, "floats.onnx"), tmp_path / "quantised.onnx", "QDQ", signed=False
    )
    made = decomposed(bench, onnx.load(tmp_path / "quantised.onnx"), tmp_path)
    works = [set(names).difference(("Constant", *QUANTISING)) for names in operators(made)]
    # Its Relus are part of quantising, and a pooling of integers needs no numbers.
    assert works[-2:] == [{"MaxPool"}, {"Conv"}]
    assert len(works) == 4
    between = {
        type_.dtype for brick in made.bricks.values() if "Conv" in brick.operators
        for type_ in brick.inputs.values()
    }  # fmt: skip
    assert between == {"UINT8"}


def test_numbers_pass_where_an_operator_takes_no_integers(bench: Bench, tmp_path: Path) -> None:
    """A Softmax reads numbers, which OpenVINO makes where the integers would be."""
    floats = model(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("Softmax", ["a"], ["b"]),
            node("MatMul", ["b", "w1"], ["c"]),
            node("Reshape", ["c", "shape"], ["d"]),
            node("MatMul", ["d", "w2"], ["y"]),
        ],
        [value("x", [1, 16, 64])],
        [value("y", [16, 32])],
        [weight("w0", 64, 64), weight("w1", 64, 128), weight("w2", 128, 32),
         constant("shape", [16, 128])],
    )  # fmt: skip
    quantise(
        save(floats, tmp_path, "floats.onnx"), tmp_path / "quantised.onnx", "QDQ", signed=False
    )
    made = decomposed(bench, onnx.load(tmp_path / "quantised.onnx"), tmp_path)
    assert len(made.plan.occurrences) >= 3
    assert sum("MatMul" in names for names in operators(made)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual, dense, attention], ids=lambda make: make.__name__)
def test_bricks_in_bfloat16_pass_bfloat16_on(
    bench: Bench, bfloat16: Bench, tmp_path: Path, make: Callable[[], onnx.ModelProto]
) -> None:
    floats, made = (decomposed(each, make(), tmp_path) for each in (bench, bfloat16))
    casts = ("Cast", "Constant", "ConstantOfShape")
    works = [
        [[name for name in names if name not in casts] for names in operators(of)]
        for of in (floats, made)
    ]
    assert works[0] == works[1]
    first, *others = (made.bricks[o.brick] for o in made.plan.occurrences)
    assert {type_.dtype for type_ in first.inputs.values()} == {"FLOAT"}
    assert "BFLOAT16" in {type_.dtype for brick in others for type_ in brick.inputs.values()}
    if make is not attention:
        assert noted_layouts(parse_model(others[0].model)).get("i0") == "acdb"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("gluon_center_net_mobilenetv3_small", 50), ("mx_edsr", 30)]
)
def test_an_output_may_leave_a_kernel_in_another_precision(
    name: str, least: int, bfloat16: Bench
) -> None:
    """Their last convolutions leave float32 in the model, and bfloat16 in bricks."""
    made = bfloat16.decompose(bfloat16.read(name))
    assert len(made.plan.occurrences) > least


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["bench", "bfloat16"])
def test_bricks_chained_equal_the_model(
    precision: str, name: str, request: pytest.FixtureRequest
) -> None:
    chosen: Bench = request.getfixturevalue(precision)
    result = chosen.verify(chosen.read(name))
    assert result.difference.finite and result.difference.within_tolerance


def test_bricks_have_the_shapes_that_openvino_computes(bench: Bench, tmp_path: Path) -> None:
    """OpenVINO 2026.4 keeps the last axis of a real signal in its spectrum, and reduces another."""
    spectrum = node("DFT", ["x", "", "axis"], ["d"], onesided=1)
    proto = model(
        [spectrum, node("ReduceL2", ["d", "last"], ["y"], keepdims=0)],
        [value("x", [4, 64, 1])],
        [value("y", [4, 33])],
        [constant("axis", 1, "INT64"), constant("last", [2], "INT64")],
        opset=20,
    )
    made = decomposed(bench, proto, tmp_path)
    _, reduce = (made.bricks[occurrence.brick] for occurrence in made.plan.occurrences)
    (type_,) = reduce.inputs.values()
    assert type_.shape == (4, 33, 1, 2)
    assert made.plan.assumed == (
        "OpenVINO computes something else than the model: ReduceL2 'ReduceL2_y' makes 4×33×2,"
        " where ONNX specifies 4×33",
    )


def test_a_topk_whose_indices_leave_the_model_is_a_brick(bench: Bench, tmp_path: Path) -> None:
    """OpenVINO names the conversion of its indices after the TopK, though it is no work of it."""
    proto = model(
        [node("Relu", ["x"], ["r"]), node("TopK", ["r", "k"], ["v", "i"], axis=1)],
        [value("x", [8, 100])],
        [value("v", [8, 5]), value("i", [8, 5], "INT64")],
        [constant("k", [5], "INT64")],
    )
    made = decomposed(bench, proto, tmp_path)
    assert len(made.plan.occurrences) == 2
    assert made.plan.assumed == ()
    bricks = [parse_model(brick.model) for brick in made.bricks.values()]
    assert not any(noted_other_kernels(brick) for brick in bricks)


def test_an_operator_that_openvino_refuses_is_named_in_one_line(
    bench: Bench, tmp_path: Path
) -> None:
    proto = model(
        [
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("ConcatFromSequence", ["s"], ["y"], axis=0),
        ],
        [value("x", [2, 3])],
        [value("y", [4, 3])],
    )
    with refused(WorkerError, "sequence", "OpenVINO", "sequences"):
        bench.decompose(bench.read(save(proto, tmp_path, "sequence.onnx")))


def test_a_refusal_names_what_the_model_has(bench: Bench, tmp_path: Path) -> None:
    """Neither nodes of OpenVINO's own graph nor positions in its source."""
    det = model([node("Det", ["x"], ["y"])], [value("x", [4, 4])], [value("y", [])])
    with refused(WorkerError, "det", "OpenVINO", "Det"):
        bench.decompose(bench.read(save(det, tmp_path, "det.onnx")))
    nodes = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "shape"], ["y"])]
    shape = constant("shape", [3, 5], "INT64")
    bad = model(nodes, [value("x", [4, 4])], [value("y", None)], [shape])
    with refused(WorkerError, "bad", "Reshape", "[3,5]") as caught:
        bench.decompose(bench.read(save(bad, tmp_path, "bad.onnx")))
    text = str(caught.value)
    assert not any(inner in text for inner in ("Reshape_", "opset1::", "src/", "While")), text
