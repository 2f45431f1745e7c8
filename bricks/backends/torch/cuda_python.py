"""The Python whose PyTorch is built for CUDA: that of the user, who has it with the GPU.

The environment of this package has the build for processors, which is a tenth of the size. Must not
import PyTorch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from bricks.errors import BackendError

# The environment variable with the path of the interpreter; by default this process's.
VARIABLE = "BRICKS_CUDA_PYTHON"

_TIMEOUT_S = 60.0

# Prints the version of PyTorch and that of CUDA that it is built for, without importing it, and
# then the packages among the arguments that are missing.
_ASK = """
import importlib.util, pathlib, runpy, sys
found = importlib.util.find_spec("torch")
facts = {}
if found is not None and found.origin:
    facts = runpy.run_path(str(pathlib.Path(found.origin).with_name("version.py")))
print(facts.get("__version__") or "")
print(facts.get("cuda") or "")
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""

# What bricks imports in the worker, as packages and as modules.
_PACKAGES = {
    "numpy": "numpy", "onnx": "onnx", "ml_dtypes": "ml_dtypes", "networkx": "networkx",
    "psutil": "psutil", "py-cpuinfo": "cpuinfo",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CudaPython:
    """An interpreter ``python`` and the ``version`` of its PyTorch, such as ``2.11.0+cu130``."""

    python: str
    version: str


def cuda_python() -> CudaPython:
    """Return the interpreter that ``BRICKS_CUDA_PYTHON`` names, or this process's.

    Raises :class:`BackendError` in one line if its PyTorch is missing or not built for CUDA, or if
    it lacks a package that bricks imports there.
    """
    named = os.environ.get(VARIABLE, "")
    python = shutil.which(named) if named else sys.executable
    if python is None:
        raise BackendError(f"{VARIABLE} names {named!r}, which is no program: give a Python")
    version, cuda, missing = _asked(python)
    if not cuda:
        has = f"has PyTorch {version}, which is not" if version else "has no PyTorch"
        raise BackendError(
            f"--device cuda needs PyTorch built for CUDA, and {python} {has}: name the Python that"
            f" has it in {VARIABLE}"
        )
    if missing:
        packages = " ".join(name for name, module in _PACKAGES.items() if module in missing.split())
        raise BackendError(
            f"{python} lacks what bricks needs next to PyTorch:"
            f" '{python} -m pip install {packages}' installs it"
        )
    return CudaPython(python, version)


@lru_cache
def _asked(python: str) -> tuple[str, str, str]:
    """Version and CUDA of an interpreter's PyTorch, and missing modules; each may be empty."""
    command = [python, "-c", _ASK, *_PACKAGES.values()]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BackendError(f"{python} cannot be run ({exc}): give another in {VARIABLE}") from exc
    version, cuda, missing, *_ = [*done.stdout.splitlines(), "", "", ""]
    return version, cuda, missing
