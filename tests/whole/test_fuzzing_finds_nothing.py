"""A few hundred of the damaged models that `make fuzz` tries by the thousands."""

import random
from pathlib import Path

import pytest
from damage import damaged
from fuzzing import fuzz, seeds


@pytest.mark.slow
def test_damaged_models_do_no_harm(tmp_path: Path) -> None:
    report = fuzz(200, 2024, tmp_path)
    assert report.findings == []
    assert report.outcomes.total() == 200
    # It is not all refused at once, or nothing would have been tried.
    assert report.outcomes["decomposed"] > 10
    assert report.outcomes["refused (decompose): WorkerError"] > 10
    assert report.outcomes["refused (read): ModelError"] > 10


def test_a_seed_and_a_number_make_one_case() -> None:
    models = seeds()
    cases = [damaged(random.Random(f"7/{i}"), models) for i in range(40)]
    assert cases == [damaged(random.Random(f"7/{i}"), models) for i in range(40)]
    assert len({data for _, data in cases}) > 30
