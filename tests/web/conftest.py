"""One server for all tests of a file that only ask it; it knows what ``make_known`` measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_caches import make_known
from web_server import Served, serving_here


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server's cache, and of the model ``conv.onnx`` that was measured."""
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def variables(folder: Path) -> dict[str, str]:
    """The environment variables of a server that knows published systems too."""
    return make_known(folder)


# It ends with each file: tests of other packages turn the clocks that its thread looks at, and
# count the processes that this one has started.
@pytest.fixture(scope="module")
def served(folder: Path, variables: dict[str, str]) -> Iterator[Served]:
    with serving_here(folder / "cache", variables["BRICKS_PUBLISHED"]) as served:
        yield served
