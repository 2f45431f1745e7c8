"""The Python of a GPU is one whose PyTorch is built for CUDA; what it lacks is one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from refusals import refused

from bricks.backends.torch.cuda_python import VARIABLE, CudaPython, cuda_python
from bricks.errors import BackendError

MODULES = ("numpy", "onnx", "ml_dtypes", "networkx", "psutil", "cpuinfo")


def python(folder: Path, torch: str | None, modules: tuple[str, ...] = MODULES) -> Path:
    """A Python that has only these modules, and a PyTorch with this ``version.py``."""
    site = folder / "site"
    for name in modules:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    if torch is not None:
        (site / "torch").mkdir(parents=True)
        (site / "torch" / "__init__.py").write_text("raise ImportError('it was imported')")
        (site / "torch" / "version.py").write_text(torch)
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    command.chmod(0o755)
    return command


def test_the_version_is_read_without_importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = python(tmp_path, "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.setenv(VARIABLE, str(found))
    assert cuda_python() == CudaPython(str(found), "2.11.0+cu130")


@pytest.mark.parametrize(
    ("torch", "modules", "fact"),
    [
        (None, MODULES, VARIABLE),
        ("__version__ = '2.13.0+cpu'\ncuda = None\n", MODULES, "2.13.0+cpu"),
        ("__version__ = '2.11.0'\ncuda = '13.0'\n", MODULES[:-1], "py-cpuinfo"),
    ],
)
def test_what_it_lacks_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    torch: str | None,
    modules: tuple[str, ...],
    fact: str,
) -> None:
    found = python(tmp_path, torch, modules)
    monkeypatch.setenv(VARIABLE, str(found))
    with refused(BackendError, fact, found):
        cuda_python()


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere/python")
    with refused(BackendError, VARIABLE, "/nowhere/python"):
        cuda_python()
