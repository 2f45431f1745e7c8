import os
from pathlib import Path

import pytest
from commands import Here


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody's shell says about caches and the zoo must not decide what tests do."""
    for name in os.environ:
        if name.startswith("BRICKS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Commands in this process, on a cache of their own."""
    return Here(tmp_path / "cache", capsys)
