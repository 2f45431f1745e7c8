import os
from pathlib import Path

import pytest
from caches import FILE, MODEL
from commands import Here, bricks


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


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a cache that knows a real model, measured by the fake runtime."""
    folder = tmp_path_factory.mktemp("whole")
    assert bricks("measure", MODEL, "--runtime", "fake", "--cache", folder).status == 0
    return (folder / FILE).read_bytes()
