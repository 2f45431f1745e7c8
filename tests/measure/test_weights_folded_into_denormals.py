"""Weights that are denormal, or made so by a tiny scale that is folded in, are so in bricks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value
from onnx import helper
from refusals import refused

from bricks import Bench
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.decompose.plan import Brick
from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.graph.model_metadata import WEIGHTS, noted_sketches, noted_weights
from bricks.graph.payload import value_dtype
from bricks.graph.sketch import DENORMALS, Sketch
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model
from bricks.graph.weights import share_of
from bricks.reading.read import read_model
from bricks.suite import pack_model, unpack_model


def scaled(scales: np.ndarray) -> onnx.ModelProto:
    """Two convolutions; the first is normalised, and multiplied by the ``scales``."""
    channels = scales.size
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.1, 1, (channels, channels, 3, 3)) for _ in range(2)]
    names = ("scale", "shift", "mean", "variance")
    facts = (scales, np.zeros(channels), np.zeros(channels), np.ones(channels))
    constants = [constant(f"w{i}", each, "FLOAT") for i, each in enumerate(weights)]
    constants += [constant(n, each, "FLOAT") for n, each in zip(names, facts, strict=True)]
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", *names], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    shape = [1, channels, 6, 6]
    return model(nodes, [value("x", shape)], [value("y", shape)], constants)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("cache"), threads=1) as made:
        yield made


def convolutions(bench: Bench, read: Model) -> list[Brick]:
    """In order of execution."""
    found = bench.decompose(read)
    bricks = [found.bricks[occurrence.brick] for occurrence in found.plan.occurrences]
    return [brick for brick in bricks if brick.operators[0].endswith("Conv")]


def reads(bench: Bench, read: Model) -> list[dict[str, float]]:
    """Of each convolution in order, the shares of denormals among what it reads, by port."""
    protos = [parse_model(brick.model) for brick in convolutions(bench, read)]
    noted = [noted_sketches(proto) | noted_weights(proto) for proto in protos]
    return [{n: s.denormals for n, s in each.items() if s.denormals} for each in noted]


@pytest.mark.parametrize("channels", [8, 32])  # with few channels, the scale is in the skeleton
def test_a_tiny_scale_is_another_model_with_bricks_of_denormals(
    bench: Bench, channels: int, tmp_path: Path
) -> None:
    paths = [save(scaled(np.full(channels, s)), tmp_path, f"{s}.onnx") for s in (1, 0.5, 1e-39)]
    one, half, tiny = (bench.read(path) for path in paths)
    assert one.digest == half.digest != tiny.digest
    assert reads(bench, one) == [{}, {}]
    first, second = reads(bench, tiny)
    assert first["w0"] >= 0.5  # the runtime pads eight channels by zeros
    assert second["i0"] >= 0.25
    keys, others = ({brick.key for brick in convolutions(bench, each)} for each in (one, tiny))
    assert not keys & others
    assert bench.verify(tiny).exact


def widened(size: float, dtype: str) -> onnx.ModelProto:
    """A product with a weight of another type, of numbers up to a ``size``."""
    kind = onnx.TensorProto.DataType.Value(dtype)
    random = np.random.default_rng(0).uniform(-1, 1, (64, 64)) * size
    data = random.astype(value_dtype(dtype)).tobytes()
    weight = helper.make_tensor("w", kind, [64, 64], data, raw=True)
    scale = constant("scale", 0.01, "FLOAT")
    wide = (
        node("DequantizeLinear", ["w", "scale"], ["wide"])
        if "8" in dtype
        else node("Cast", ["w"], ["wide"], to=onnx.TensorProto.FLOAT)
    )
    nodes = [wide, node("MatMul", ["x", "wide"], ["y"])]
    shape = [4, 64]
    proto = model(nodes, [value("x", shape)], [value("y", shape)], [weight, scale])
    proto.opset_import[0].version = 21
    return proto


@pytest.mark.parametrize(
    ("dtype", "least"),
    [("FLOAT8E4M3FN", 2.0**-6), ("FLOAT8E5M2", 2.0**-14), ("BFLOAT16", 2.0**-126)],
)
def test_weights_of_few_bits_are_as_denormal_in_bricks(
    bench: Bench, dtype: str, least: float, tmp_path: Path
) -> None:
    paths = [save(widened(size, dtype), tmp_path, f"{size}.onnx") for size in (1, least)]
    ordinary, tiny = (bench.read(path) for path in paths)
    assert ordinary.digest != tiny.digest
    keys = []
    for read in (ordinary, tiny):
        found = bench.decompose(read)
        first = found.bricks[found.plan.occurrences[0].brick]
        proto = parse_model(first.model)
        noted = noted_shares(proto)
        assert noted >= 0.7 if read is tiny else noted == 0
        weights, _ = SyntheticData(Pool(0)).of(proto, first.key)
        (name,) = (n for n, t in first.weights.items() if t.shape == (64, 64))
        drawn = share_of(weights[name], first.weights[name].dtype)
        assert drawn == pytest.approx(noted, abs=0.05)
        keys.append(first.key)
    assert keys[0] != keys[1]
    assert bench.verify(tiny).exact


def product(dtype: str, scale: float, *, by: str, zeros: float = 0.0) -> onnx.ModelProto:
    """A weight of ordinary numbers and ``zeros`` of a type, times a ``scale``, before a product."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(0, 1, (64, 64)) * (20 if dtype == "INT8" else 1)
    numbers[rng.random(numbers.shape) < zeros] = 0
    kind = onnx.TensorProto.DataType.Value(dtype)
    data = numbers.astype(value_dtype(dtype)).tobytes()
    weight = helper.make_tensor("w", kind, [64, 64], data, raw=True)
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["d"])
        if by == "DequantizeLinear"
        else node("Cast", ["w"], ["c"], to=onnx.TensorProto.FLOAT),
        *([] if by == "DequantizeLinear" else [node(by, ["c", "scale"], ["d"])]),
        node("Transpose", ["d"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    shape = [4, 64]
    scales = [weight, constant("scale", scale, "FLOAT")]
    proto = model(nodes, [value("x", shape)], [value("y", shape)], scales)
    proto.opset_import[0].version = 21
    return proto


PRODUCTS = [
    ("FLOAT8E5M2", 1e-38, "DequantizeLinear"),
    ("FLOAT8E4M3FN", 1e-38, "DequantizeLinear"),
    ("INT8", 5e-40, "DequantizeLinear"),
    ("BFLOAT16", 1e-38, "Mul"),
    ("FLOAT", 1e38, "Div"),
]


@pytest.mark.parametrize(("dtype", "scale", "by"), PRODUCTS)
def test_products_of_constants_are_as_denormal_in_bricks(
    bench: Bench, dtype: str, scale: float, by: str, tmp_path: Path
) -> None:
    """Neither factor is denormal: what is computed of both is."""
    usual = 0.01
    paths = [save(product(dtype, s, by=by), tmp_path, f"{s}.onnx") for s in (usual, scale)]
    ordinary, tiny = (bench.read(path) for path in paths)
    assert noted_weights(parse_model(ordinary.skeleton)) == {}
    noted = noted_weights(parse_model(tiny.skeleton))
    assert noted.keys() == {"w", "scale"}
    found = bench.decompose(tiny)
    last = parse_model(found.bricks[found.plan.occurrences[-1].brick].model)
    shares = [s.denormals or 0 for s in (noted_sketches(last) | noted_weights(last)).values()]
    weights, _ = SyntheticData(Pool(0)).of(last, "b1-0")
    drawn = [share_of(w, "FLOAT") for w in weights.values() if w.dtype == np.float32]
    assert max([*shares, *drawn]) >= 0.4
    assert not found.bricks.keys() & bench.decompose(ordinary).bricks.keys()
    assert bench.verify(tiny).exact
    sent = unpack_model("suite", "model", tiny.digest, pack_model(tiny))
    assert noted_weights(parse_model(sent.skeleton)) == noted


@pytest.mark.parametrize("dtype", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("zeros", [0.25, 0.5, 1.0])
def test_eight_bit_weights_have_as_many_zeros_in_bricks(
    bench: Bench, dtype: str, zeros: float, tmp_path: Path
) -> None:
    """Loops that widen them branch on zeros: half of them take more than twice as long."""
    read = bench.read(save(product(dtype, 0.01, by="DequantizeLinear", zeros=zeros), tmp_path))
    (sketch,) = noted_weights(parse_model(read.skeleton)).values()
    assert sketch.zeros == pytest.approx(zeros, abs=0.07)
    found = bench.decompose(read)
    first = found.bricks[found.plan.occurrences[0].brick]
    weights, _ = SyntheticData(Pool(0)).of(parse_model(first.model), first.key)
    (drawn,) = (w for w in weights.values() if w.dtype == np.uint8)
    assert np.mean(drawn & 0x7F == 0) == pytest.approx(zeros, abs=0.07)


def noted_shares(proto: onnx.ModelProto) -> float:
    return max((sketch.denormals or 0.0 for sketch in noted_weights(proto).values()), default=0.0)


def test_denormal_weights_of_a_product_are_noted(bench: Bench, tmp_path: Path) -> None:
    tiny = bench.read(save(widened(1e-39, "FLOAT16"), tmp_path, "half.onnx"))
    assert noted_weights(parse_model(tiny.skeleton)) == {}  # zeros, and ordinary in arithmetic


def test_the_share_of_tiny_channels_decides(bench: Bench, tmp_path: Path) -> None:
    scales = np.where(np.arange(32) % 4, 1.0, 1e-39)
    some = bench.read(save(scaled(scales), tmp_path, "some.onnx"))
    assert reads(bench, some)[0]["w0"] == pytest.approx(0.25, abs=0.125)
    few = bench.read(save(scaled(np.where(np.arange(32), 1.0, 1e-39)), tmp_path, "few.onnx"))
    assert noted_weights(parse_model(few.skeleton)) == {}


def test_a_suite_keeps_what_is_noted_of_weights(tmp_path: Path) -> None:
    read = read_model(save(scaled(np.full(32, 1e-39)), tmp_path))
    sent = unpack_model("suite", "model", read.digest, pack_model(read))
    before, after = (noted_weights(parse_model(each.skeleton)) for each in (read, sent))
    assert after == before
    assert after


def test_a_suite_keeps_the_share_of_denormals(tmp_path: Path) -> None:
    read = read_model(save(widened(2.0**-6, "FLOAT8E4M3FN"), tmp_path))
    sent = unpack_model("suite", "model", read.digest, pack_model(read))
    before, after = (noted_weights(parse_model(each.skeleton)) for each in (read, sent))
    assert after == before == {"w": Sketch(denormals=0.875)}


@pytest.mark.parametrize("noted", ['{"scale": {"quantiles": ["x"]}}', '{"scale": {"log": 1}}', "x"])
def test_notes_that_are_no_distribution_are_refused(noted: str, tmp_path: Path) -> None:
    proto = scaled(np.ones(32))
    path = save(proto, tmp_path, external="data")
    (tmp_path / "data").unlink()
    proto = onnx.load(path, load_external_data=False)
    helper.set_model_props(proto, {WEIGHTS: noted})
    path.write_bytes(proto.SerializeToString())
    with refused(ModelError, "scale" if "quantiles" in noted else "weights"):
        read_model(path)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_as_many_are_denormal_as_the_sketch_says(share: float) -> None:
    random = np.random.default_rng(1).uniform(0.5, 1, 4000).astype(np.float32)
    drawn = Sketch(denormals=share).drawn(random, 2)
    assert (Sketch.of(drawn, (DENORMALS,)).denormals or 0) == pytest.approx(share, abs=0.07)
    assert np.isfinite(drawn).all()
