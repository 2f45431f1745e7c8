"""PyTorch's environment, for tests of what really runs there."""

from __future__ import annotations

from pathlib import Path

from bricks.backends import ENVIRONMENTS
from bricks.system import environments

PROGRAMS = Path(__file__).resolve().parent / "programs.py"


def python() -> Path:
    """The Python of PyTorch's environment, which is installed if it is not there."""
    return environments.install(ENVIRONMENTS["torch"])[0]


def program(name: str) -> str:
    """The program called ``name`` of the tests, as a command takes it."""
    return f"{PROGRAMS}:{name}"


TRAINING_PROGRAMS = PROGRAMS.with_name("training_programs.py")


def workload(name: str) -> str:
    """The workload called ``name`` that can be trained, as a command takes it."""
    return f"{TRAINING_PROGRAMS}:{name}"
