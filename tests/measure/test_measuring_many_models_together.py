from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plans import HEAVY, decomposed, plan

from bricks import Bench
from bricks.measure.jobs import ModelJob, batches, needs_of, spread_out


def job(name: str, keys: str, *, whole: bool = False, heavy: str = "") -> ModelJob:
    found = decomposed(plan([(key, [i], [i + 1]) for i, key in enumerate(keys)]), heavy)
    model: Any = SimpleNamespace(name=name, digest=f"m1-{name}")
    return ModelJob(model, found, whole)


def names(found: Any) -> list[list[str]]:
    return [[job.model.name for job in batch.jobs] for batch in found]


def test_models_come_together_until_there_are_enough_bricks() -> None:
    jobs = [job("one", "abc"), job("two", "bcd"), job("three", "efg"), job("four", "h")]
    assert names(batches(jobs, set("abcdefgh"), max_bricks=5)) == [
        ["one", "two"],
        ["three", "four"],
    ]
    assert names(batches(jobs, set("abcdefgh"))) == [["one", "two", "three", "four"]]


def test_a_model_of_which_nothing_lacks_is_in_no_batch() -> None:
    jobs = [job("one", "abc"), job("two", "ab"), job("three", "cd")]
    assert names(batches(jobs, {"c"})) == [["one"]]
    assert names(batches(jobs, {"d"})) == [["three"]]
    assert names(batches(jobs, set())) == []


def test_one_models_bricks_are_never_parted() -> None:
    assert names(batches([job("one", "abcdef")], set("abcdef"), max_bricks=2)) == [["one"]]


def test_a_model_that_is_run_itself_is_alone() -> None:
    jobs = [job("one", "ab"), job("two", "cd", whole=True), job("three", "ef")]
    missing = {*"abcdef", *jobs[1].keys}
    assert sorted(names(batches(jobs, missing))) == [["one", "three"], ["two"]]


def test_weights_are_a_limit_too() -> None:
    jobs = [job("one", "ab", heavy="ab"), job("two", "cd", heavy="cd"), job("three", "e")]
    found = batches(jobs, set("abcde"), max_weight_bytes=3 * HEAVY.size_bytes)
    assert names(found) == [["one"], ["two", "three"]]


@pytest.mark.parametrize(("available", "most"), [(0, 512), (8 << 10, 819), (64 << 10, 2048)])
def test_so_many_weights_are_measured_side_by_side_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, available: int, most: int
) -> None:
    monkeypatch.setattr("bricks.session.options.available_memory_bytes", lambda: available << 20)
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        assert bench.workspace.conditions.max_weight_bytes >> 20 == most


def test_a_brick_is_measured_in_the_model_of_which_it_is_most() -> None:
    (batch,) = batches([job("one", "abcde"), job("two", "cf"), job("three", "cgg")], set("abcdefg"))
    assigned = [
        (job.model.name, keys) for job, keys in batch.assigned(set("bcfg"), needs_of(batch.jobs))
    ]
    assert assigned == [("one", {"b"}), ("two", {"c", "f"}), ("three", {"g"})]
    assert batch.keys == list("abcdefg")


def test_bricks_come_into_the_batch_of_the_model_that_they_are_measured_in() -> None:
    jobs = [job("one", "abcde"), job("two", "cf"), job("three", "ab")]
    jobs = spread_out(jobs, set("abcf"), needs_of(jobs))
    assert [one.keys for one in jobs] == [[], ["c", "f"], ["a", "b"]]
    assert names(batches(jobs, set("abcf"), max_bricks=2)) == [["two"], ["three"]]


def test_beside_a_model_itself_all_of_its_bricks_are_measured() -> None:
    jobs = [job("one", "abc", whole=True)]
    assert spread_out(jobs, set("ab"), needs_of(jobs)) == jobs


def test_needs_are_all_of_a_models_bricks_also_those_that_are_not_measured_now() -> None:
    one = ModelJob(
        job("one", "aab").model, job("one", "aab").decomposition, False, chosen=frozenset("a")
    )
    (needs,) = needs_of([one]).values()
    assert needs.counts == {"a": 2, "b": 1}
    assert one.keys == ["a"]
    assert all(work > 0 for work in needs.works.values())
