"""Environments of the runtimes that cannot share one with bricks, for tests of what really runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tiers

from bricks.backends import offer
from bricks.system import environments

SUPPORT = Path(__file__).resolve().parent


def python(name: str) -> Path:
    """The Python of the environment called ``name``.

    Where it is not installed, all tests install it first, and the quick ones are skipped.
    """
    environment = offer(name).environment
    assert environment is not None, name
    if tiers.quick and environment.interpreter is None:
        pytest.skip(f"{name} is not installed: {environment.install}")
    return environments.install(environment)[0]


def run(interpreter: Path, script: str, *arguments: object) -> str:
    """What a script of the tests prints under an interpreter that finds this checkout."""
    done = subprocess.run(
        [str(interpreter), str(SUPPORT / script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
