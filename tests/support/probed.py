"""Commands on a cache that knows the call overhead: measuring it is most of measuring little."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import Here, chain
from factories import save

from bricks import Bench


@pytest.fixture(scope="session")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows the call overhead of the fake runtime, and one brick."""
    folder = tmp_path_factory.mktemp("probed")
    with Bench(folder / "cache", runtime="fake") as bench:
        bench.measure([bench.read(save(chain("Floor", width=7), folder))])
    return folder / "cache"


@pytest.fixture
def here(probed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Commands in this process, on a copy of that cache."""
    return Here(shutil.copytree(probed, tmp_path / "cache"), capsys)
