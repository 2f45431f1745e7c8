"""MXNet's environment, for tests of what really runs there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bricks.backends import ENVIRONMENTS
from bricks.system import environments

SUPPORT = Path(__file__).resolve().parent


def python() -> Path:
    """The Python of MXNet's environment, which is installed if it is not there."""
    return environments.install(ENVIRONMENTS["mxnet"])[0]


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
