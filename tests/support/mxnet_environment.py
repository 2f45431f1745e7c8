"""MXNet's environment, for tests of what really runs there."""

from __future__ import annotations

from pathlib import Path

import runtime_environments


def python() -> Path:
    """MXNet's environment's Python; tests are skipped, or install it, where it is not there."""
    return runtime_environments.python("mxnet")
