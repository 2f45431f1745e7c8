from __future__ import annotations

from collections.abc import Iterator

import pytest
from rough import measuring_roughly

from bricks.studies.serving import outcome


@pytest.fixture(autouse=True, scope="module")
def _roughly() -> Iterator[None]:
    with measuring_roughly():
        yield


@pytest.fixture
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few queries: that many of them make figures exact is for ``tests/studies/serving``."""
    poisson_s = outcome.poisson_s

    def few_s(qps: float, count: int, seed: int) -> list[float]:
        return poisson_s(qps, min(count, 500), seed)

    monkeypatch.setattr(outcome, "QUERIES", 500)
    monkeypatch.setattr(outcome, "poisson_s", few_s)
