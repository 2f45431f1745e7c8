"""OpenVINO's environment, for tests of what really runs there."""

from __future__ import annotations

from pathlib import Path

from bricks.backends import ENVIRONMENTS
from bricks.system import environments


def python() -> Path:
    """The Python of OpenVINO's environment, which is installed if it is not there."""
    return environments.install(ENVIRONMENTS["openvino"])[0]
