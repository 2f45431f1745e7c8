"""``--device`` names what runs models; where that is missing, one line says so, at once."""

from __future__ import annotations

import ctypes
import json
from contextlib import suppress

import pytest
from commands import Here


def _driver() -> bool:
    with suppress(OSError):
        return bool(ctypes.CDLL("libcuda.so.1"))
    return False


without_gpu = pytest.mark.skipif(_driver(), reason="this host has a driver of GPUs")


@without_gpu
@pytest.mark.parametrize("command", ["measure", "predict", "compare", "decompose"])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_host_without_a_gpu_says_so_in_one_line(
    here: Here, command: str, more: tuple[str, ...]
) -> None:
    done = here(command, "torch_bert", "--device", "cuda", *more, runtime="torch")
    assert done.status == 1
    assert "libcuda.so.1" in done.complaint
    if more:
        assert json.loads(done.out or "{}") == {}


def test_a_runtime_of_processors_refuses_a_gpu(here: Here) -> None:
    done = here("predict", "squeezenet", "--device", "cuda", runtime="onnxruntime")
    assert done.status == 1
    assert "onnxruntime" in done.complaint
    assert "--device cuda" in done.complaint


def test_compiled_programs_are_refused_on_a_gpu_with_what_runs_there(here: Here) -> None:
    done = here("predict", "torch_bert", "--device", "cuda", runtime="torch-compiled")
    assert done.status == 1
    assert "torch-compiled" in done.complaint and "eager" in done.complaint
    assert "--runtime torch" in done.complaint and "--device cuda" in done.complaint


def test_a_mistyped_device_is_told_which_there_are(here: Here) -> None:
    done = here("predict", "torch_bert", "--device", "cudaa", runtime="torch")
    assert done.status == 2
    assert "'cudaa': give cpu or cuda" in done.complaint
