"""A latency model never changes; latencies of a target have another one after new measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import chain
from factories import save

from bricks import Bench, Conditions, StopRule
from bricks.predict.effort import MIN
from bricks.session.latencies import Latencies

QUICK = Conditions(rule=StopRule(min_rounds=2, max_rounds=2), exclusive=False)
OPERATORS = "Abs Ceil Cos Elu Erf Exp Floor Log Neg Relu Round Selu Sigmoid Sin Sqrt Tanh".split()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    options = {"runtime": "fake", "threads": 1, "published": False, "conditions": QUICK}
    with Bench(tmp_path / "cache", **options) as opened:
        yield opened


def measure(bench: Bench, folder: Path, width: int) -> set[str]:
    """The bricks of a model of this width, measured."""
    model = bench.read(save(chain(*OPERATORS, width=width), folder, f"{width}.onnx"))
    bench.measure([model])
    return set(bench.decompose(model).plan.keys)


def test_it_is_learned_once_until_something_is_measured(bench: Bench, tmp_path: Path) -> None:
    few = measure(bench, tmp_path, 64)
    latencies = bench.workspace.estimators.latencies()
    first = latencies.model()
    assert latencies.model() is first
    assert (first.predictor, first.missing_count) == (None, MIN - len(few))
    more = measure(bench, tmp_path, 80) | measure(bench, tmp_path, 96)
    later = latencies.model()
    assert first.known.measured.keys() == few
    assert later.known.measured.keys() == few | more
    assert later.predictor is not None and later.missing_count == 0


def test_all_that_is_known_is_forgotten_after_a_merge(bench: Bench, tmp_path: Path) -> None:
    keys = measure(bench, tmp_path, 64)
    there = tmp_path / "results"
    bench.store.contents.export(there, [bench.target.key], package="0")
    with Bench(tmp_path / "other", runtime="fake", threads=1, published=False) as other:
        assert latencies_of(other).model().known.measured == {}
        other.workspace.merge(there)
        assert latencies_of(other).model().known.measured.keys() == keys


def latencies_of(bench: Bench) -> Latencies:
    return bench.workspace.estimators.latencies()
