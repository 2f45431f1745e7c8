"""What a host does with a model that was sent to it, and that no honest coordinator would send."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import pytest
from factories import mlp, save

from bricks.errors import SuiteError
from bricks.fleet.host import ModelPayload
from bricks.graph.model import Model
from bricks.reading.read import read_model

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return read_model(save(mlp(), tmp_path, "mlp.onnx"), name="mlp")


def bomb(size_mib: int) -> bytes:
    """So many MiB of zeros, compressed a thousandfold."""
    packer, zeros = zlib.compressobj(1), bytes(MIB)
    return b"".join([packer.compress(zeros) for _ in range(size_mib)]) + packer.flush()


def refusal(payload: ModelPayload) -> str:
    with pytest.raises(SuiteError) as error:
        payload.unpack()
    line = str(error.value)
    assert "\n" not in line
    return line


def test_a_model_arrives_as_it_was_sent(model: Model) -> None:
    assert ModelPayload.of(model).unpack().digest == model.digest


def test_a_compressed_bomb_is_refused_before_it_takes_memory(model: Model) -> None:
    payload = ModelPayload("mlp", model.digest, bomb(257))
    tracemalloc.start()
    try:
        line = refusal(payload)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "the model mlp that was sent is larger than 256 MiB without its weights" in line
    assert line.endswith("measure it on each host, without --scheduler")
    assert peak_bytes < 16 * MIB


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"\xff" + b[1:], lambda b: b""])
def test_a_model_that_cannot_be_decompressed_is_refused_by_name(
    model: Model, damage: object
) -> None:
    assert callable(damage)
    payload = ModelPayload("mlp", model.digest, damage(ModelPayload.of(model).skeleton))
    assert "the model mlp that was sent is cut off or damaged: send it again" in refusal(payload)


def test_another_model_than_was_announced_is_refused_by_name(model: Model) -> None:
    payload = ModelPayload("mlp", "0" * 64, ModelPayload.of(model).skeleton)
    assert "the model mlp in it is not the one that its digest stands for" in refusal(payload)
