"""What was read of a file is kept, and used as long as the file and its data are as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from factories import conv_net, mlp, save
from refusals import refused

from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.reading import read
from bricks.reading.kept_models import read_once


@pytest.fixture(autouse=True)
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read with ONNX."""
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "derived"))
    files: list[Path] = []
    original = read.read_model

    def read_model(path: Path, **options: Any) -> Model:
        files.append(path)
        return original(path, **options)

    monkeypatch.setattr(read, "read_model", read_model)
    return files


def model_in(path: Path, **options: Any) -> Model:
    return read_once(path, **{"batch": None, "shapes": {}, "values": {}, "name": "net"} | options)


def test_the_same_file_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    path = save(conv_net(), tmp_path)
    first = model_in(path)
    assert model_in(path) == first
    renamed = model_in(path, name="other")
    assert (renamed.name, renamed.digest) == ("other", first.digest)
    assert reads == [path]


def test_a_changed_file_or_option_is_read_again(tmp_path: Path, reads: list[Path]) -> None:
    path = save(conv_net(), tmp_path)
    first = model_in(path)
    assert model_in(path, batch=3).digest != first.digest
    before = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Relu", b"Tanh"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # its content counts, not its time
    assert model_in(path).digest != first.digest
    assert len(reads) == 3


def test_values_of_inputs_are_not_kept(tmp_path: Path, reads: list[Path]) -> None:
    path = save(mlp(), tmp_path)
    (name, kind), *_ = model_in(path).inputs
    for _ in range(2):
        model_in(path, values={name: np.zeros(kind.shape, np.float32)})
    assert len(reads) == 3


def test_other_data_next_to_it_are_read_again(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(conv_net(), path, save_as_external_data=True, location="net.data", size_threshold=0)
    first = model_in(path)
    assert model_in(path) == first
    assert len(reads) == 1
    data = tmp_path / "net.data"
    data.write_bytes(data.read_bytes() + b"\0")
    model_in(path)
    data.unlink()
    model_in(path)
    assert len(reads) == 3


def test_what_is_kept_is_not_believed(tmp_path: Path, reads: list[Path]) -> None:
    path = save(conv_net(), tmp_path)
    first = model_in(path)
    (kept,) = (p for p in (tmp_path / "derived").rglob("*") if p.is_file())
    content = kept.read_bytes()
    for damaged in (b"", content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        kept.write_bytes(damaged)
        assert model_in(path) == first
    assert len(reads) == 4


def test_an_error_is_found_each_time(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"no model")
    for _ in range(2):
        with refused(ModelError, "net.onnx"):
            model_in(path)
    with refused(ModelError, "nothing.onnx"):
        model_in(tmp_path / "nothing.onnx")
