from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Here
from factories import model, node, save, value
from onnx import numpy_helper

from bricks.cli.warnings import MANY_DENORMALS
from bricks.graph.denormals import denormal_share
from bricks.reading.read import read_model

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


def test_a_large_weight_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bricks.graph.denormals.CHUNK_BYTES", 1000)
    share = denormal_share(read_model(net(tmp_path, weights(300))))
    assert share == pytest.approx(300 / SIDE**2)


@pytest.mark.parametrize("command", ["decompose", "measure", "compare"])
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
