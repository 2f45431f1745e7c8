from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Here
from factories import model, node, save, value
from onnx import TensorProto, helper, numpy_helper

from bricks.cli.reading import MANY_DENORMALS
from bricks.graph.payload import numpy_dtype, value_dtype
from bricks.graph.weights import denormal_share, share_of, with_denormals
from bricks.reading.read import read_model

# Types with denormals that slow processors, and the least normal number of each.
NORMAL = {
    "FLOAT": 2.0**-126, "DOUBLE": 2.0**-1022, "BFLOAT16": 2.0**-126,
    "FLOAT8E4M3FN": 2.0**-6, "FLOAT8E5M2": 2.0**-14,
}  # fmt: skip

SIDE = 64


def weights(denormal: int, dtype: type[np.floating] = np.float32) -> np.ndarray:
    """Ordinary numbers, zeros of both signs, and so many denormals of both signs."""
    values = np.linspace(-1, 1, SIDE * SIDE).astype(dtype)
    values[:2] = (0.0, -0.0)
    tiny = np.finfo(dtype).smallest_subnormal * np.array([3, -3], dtype)
    values[2 : 2 + denormal] = np.resize(tiny, denormal)
    return values.reshape(SIDE, SIDE)


def net(folder: Path, values: np.ndarray, external: str | None = None) -> Path:
    kind = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}[values.dtype.name]
    shapes = [value(name, [2, SIDE], kind) for name in "xy"]
    weight = numpy_helper.from_array(values, "w")
    proto = model([node("MatMul", ["x", "w"], ["y"])], shapes[:1], shapes[1:], [weight])
    return save(proto, folder, external=external)


@pytest.mark.parametrize("external", [None, "net.weights"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("denormal", [0, 1, 1024])
def test_denormals_are_counted_and_zeros_are_not(
    tmp_path: Path, external: str | None, dtype: type[np.floating], denormal: int
) -> None:
    share = denormal_share(read_model(net(tmp_path, weights(denormal, dtype), external)))
    assert share == pytest.approx(denormal / SIDE**2)


def test_what_is_tiny_in_sixteen_bits_is_ordinary_in_arithmetic(tmp_path: Path) -> None:
    assert denormal_share(read_model(net(tmp_path, weights(1024, np.float16)))) is None


def test_weights_that_are_not_there_are_not_said_to_be_ordinary(tmp_path: Path) -> None:
    path = net(tmp_path, weights(1024), "net.weights")
    (tmp_path / "net.weights").unlink()
    assert denormal_share(read_model(path)) is None


def test_of_a_large_weight_parts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bricks.graph.weights.PART_BYTES", 512)
    values = np.random.default_rng(0).permutation(weights(1024).ravel()).reshape(SIDE, SIDE)
    share = denormal_share(read_model(net(tmp_path, values)))
    assert share == pytest.approx(0.25, abs=0.05)
    assert share != 0.25


@pytest.mark.parametrize("dtype", NORMAL)
def test_a_number_is_denormal_below_the_least_normal_one(dtype: str) -> None:
    least = NORMAL[dtype]
    values = np.array([0.0, -0.0, least, -least, least / 2, -least / 2, 1.0, least / 4])
    stored = values.astype(value_dtype(dtype)).view(numpy_dtype(dtype))
    assert share_of(stored, dtype) == 3 / 8


@pytest.mark.parametrize("dtype", NORMAL)
@pytest.mark.parametrize("share", [0.125, 0.5, 1.0])
def test_as_many_become_denormal_as_are_wanted(dtype: str, share: float) -> None:
    values = np.random.default_rng(0).uniform(0.5, 1, (40, 100)).astype(value_dtype(dtype))
    stored = values.view(numpy_dtype(dtype))
    made = with_denormals(stored, dtype, share, seed=1)
    assert share_of(made, dtype) == pytest.approx(share, abs=0.03)
    assert (made.shape, made.dtype) == (stored.shape, stored.dtype)
    assert share_of(stored, dtype) == 0  # a copy
    assert np.isfinite(made.view(value_dtype(dtype)).astype(np.float64)).all()


def eighths(folder: Path, factor: float, dtype: str = "FLOAT8E4M3FN") -> Path:
    """Weights of eight-bit floats that are made wider before a product."""
    kind = TensorProto.DataType.Value(dtype)
    random = np.random.default_rng(0).uniform(0.5, 1, (SIDE, SIDE)) * factor
    data = random.astype(value_dtype(dtype)).tobytes()
    weight = helper.make_tensor("w", kind, [SIDE, SIDE], data, raw=True)
    scale = numpy_helper.from_array(np.float32(0.01), "scale")
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["wide"]),
        node("MatMul", ["x", "wide"], ["y"]),
    ]
    shapes = [value(name, [2, SIDE]) for name in "xy"]
    proto = model(nodes, shapes[:1], shapes[1:], [weight, scale])
    proto.opset_import[0].version = 21
    return save(proto, folder)


@pytest.mark.parametrize("dtype", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_eight_bit_weights_are_counted_too(tmp_path: Path, dtype: str) -> None:
    tiny = NORMAL[dtype] * 0.8
    assert denormal_share(read_model(eighths(tmp_path, tiny, dtype))) == 1
    assert denormal_share(read_model(eighths(tmp_path, 1.0, dtype))) == 0


@pytest.mark.parametrize("command", ["decompose", "measure", "compare", "predict"])
def test_people_are_warned_of_many(here: Here, tmp_path: Path, command: str) -> None:
    many = net(tmp_path, weights(int(SIDE**2 * MANY_DENORMALS * 2)))
    done = here(command, many)
    assert done.status == 0
    assert "2 % of its weights are denormal" in done.err
    assert "set_denormal_as_zero" in done.err


def test_nobody_is_warned_of_a_few(here: Here, tmp_path: Path) -> None:
    done = here("decompose", net(tmp_path, weights(3)), "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["models"][0]["denormal_share"] == pytest.approx(3 / SIDE**2)
