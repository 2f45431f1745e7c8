"""Environments of the runtimes that cannot share one with bricks, for tests of what really runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiers

from bricks.backends import ENVIRONMENTS
from bricks.system import environments


def python(name: str) -> Path:
    """The Python of the environment called ``name``.

    Where it is not installed, all tests install it first, and the quick ones are skipped.
    """
    environment = ENVIRONMENTS[name]
    if tiers.quick and environment.interpreter is None:
        pytest.skip(f"{name} is not installed: {environment.install}")
    return environments.install(environment)[0]
