from __future__ import annotations

from collections.abc import Iterator

import pytest
from rough import measuring_roughly


@pytest.fixture(autouse=True, scope="module")
def _roughly() -> Iterator[None]:
    with measuring_roughly():
        yield
