from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bricks import Bench
from bricks.zoo import entries

NAMES = [entry.name for entry in entries()]


@pytest.fixture(scope="module", params=["executed", "1", "4"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    cache: Path = tmp_path_factory.mktemp("cache")
    with Bench(cache, granularity=request.param, threads=2) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_model(bench: Bench, name: str) -> None:
    result = bench.verify(bench.read(name))
    assert result["finite"], "outputs that are not numbers prove nothing"
    if bench.options.granularity == "executed":
        assert result["exact"]
        assert result["max_abs_difference"] == 0.0
    else:
        assert result["max_rel_difference"] <= result["tolerance"] == 1e-3
