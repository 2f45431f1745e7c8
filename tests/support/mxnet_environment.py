"""MXNet's environment, for tests of what really runs there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import runtime_environments

SUPPORT = Path(__file__).resolve().parent


def python() -> Path:
    """MXNet's environment's Python; tests are skipped, or install it, where it is not there."""
    return runtime_environments.python("mxnet")


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
