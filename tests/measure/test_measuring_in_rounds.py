from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from factories import mlp, save

from bricks import Bench
from bricks.measure.conditions import Conditions, SamplingGoal, StopRule
from bricks.measure.jobs import Importance, ModelNeeds
from bricks.measure.loaded_walks import FailedKeys, PreparationTimes
from bricks.measure.loop import in_turn
from bricks.measure.protocol.walking import WalkConditions
from bricks.measure.sampler import WalkSamples
from bricks.measure.task_sampler import WalkSampling
from bricks.measure.walk import WalkStep
from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Sample


class Walks:
    """Walks with synthetic samples: steady ones, and ``noisy`` ones that never settle.

    A walk has one brick for each letter after a dash, all alike but ``n``, which is noisy. Every
    second round of ``busy`` ones is disturbed.
    """

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.order: list[str] = []
        self.rounds: Counter[str] = Counter()
        self.failed_keys = FailedKeys(shared=False)
        self.preparation_s: dict[str, float] = {}

    def steps(self, name: str) -> list[WalkStep]:
        return [WalkStep(name, name, (), (), timed=True)]

    def walk(self, name: str, passes: int, keys: Collection[str] | None = None) -> WalkSamples:
        self.order.append(name)
        if name == "broken":
            return WalkSamples({})
        turn = self.order.count(name)
        samples = {}
        for key in name.partition("-")[2] or [name]:
            noisy = key.startswith("noisy") or key == "n"
            if keys is None or key in keys:
                samples[key] = (Sample(1.0 + (turn % 5 if noisy else 0)),) * passes
                self.rounds[key] += 1
        waited = 0.5 if name.startswith("busy") and turn % 2 else 0.0
        return WalkSamples(samples, WalkConditions(waited_share=waited))

    def sample(self, rule: StopRule, **goals: SamplingGoal) -> Counter[str]:
        """How many rounds each walk got."""
        walks: Any = self
        in_turn(WalkSampling(walks, rule, goals), lambda rounds: None)
        return Counter(self.order)


def model(**counts: int) -> Importance:
    """Shares of one model with so much of each brick, all of them with equal work."""
    return Importance({"model": ModelNeeds(counts, dict.fromkeys(counts, 1.0))}, {})


def test_each_walk_ends_when_it_is_known() -> None:
    rule = StopRule(min_rounds=8, max_rounds=24)
    assert Walks("steady", "noisy").sample(rule) == {"steady": 8, "noisy": 24}
    assert Walks("steady", "other").sample(rule) == {"steady": 8, "other": 8}


def test_rounds_change_direction() -> None:
    walks = Walks("a", "b")
    walks.sample(StopRule(min_rounds=6, max_rounds=6))
    assert "".join(walks.order) == "abba" * 3


def test_a_walk_of_which_nothing_runs_ends_alone() -> None:
    walks = Walks("broken", "steady")
    assert walks.sample(StopRule()) == {"broken": 1, "steady": 8}


@pytest.mark.parametrize(("before", "more"), [(0, 8), (1, 7), (2, 6), (3, 5), (9, 3), (20, 4)])
def test_rounds_of_an_interrupted_run_count(before: int, more: int) -> None:
    rounds = [Round((1.0, 1.0), waited_share=0.0)] * before
    walks = Walks("steady")
    assert walks.sample(StopRule(), steady=SamplingGoal({"steady": rounds})) == {"steady": more}


def test_a_brick_is_sampled_for_what_it_is_of_its_model() -> None:
    walks = Walks("net-abcd")
    walks.sample(StopRule(), **{"net-abcd": SamplingGoal(shares=model(a=500, b=250, c=245, d=5))})
    assert walks.rounds == {"a": 4, "b": 2, "c": 2, "d": 1}


def test_a_brick_that_adds_little_rests_while_others_go_on() -> None:
    walks = Walks("net-abn")
    walks.sample(StopRule(), **{"net-abn": SamplingGoal(shares=model(a=1, b=1, n=9))})
    assert walks.rounds["n"] == 23  # 27 / 29 of 24
    assert walks.rounds["a"] == walks.rounds["b"] < 8


def test_what_counts_is_the_model_that_needs_a_brick_most() -> None:
    needs = {
        "large": ModelNeeds({"a": 1, "b": 99}, {"a": 1.0, "b": 1.0}),
        "small": ModelNeeds({"a": 1}, {"a": 1.0}),
    }
    assert Importance(needs, {}).of({"a": 2.0, "b": 2.0}) == {"a": 1.0, "b": 0.99}
    del needs["small"]
    assert Importance(needs, {}).of({"a": 2.0, "b": 2.0})["a"] == pytest.approx(0.01)
    assert Importance(needs, {"b": 2.0}).of({"a": 2.0})["a"] == pytest.approx(0.01)


def test_what_is_not_measured_yet_is_guessed_from_its_work() -> None:
    needs = {"net": ModelNeeds({"a": 1, "b": 1}, {"a": 1.0, "b": 3.0})}
    assert Importance(needs, {}).of({"a": 1.0}) == {"a": 0.25}


def test_the_shares_of_a_model_need_together_what_it_needs() -> None:
    """Squares of what the parts are allowed add up to the square of what the whole is."""
    rule = StopRule(precision=0.02, min_rounds=1)
    parts = [0.5, 0.3, 0.2]
    allowed = [rule.precision / share**0.5 * share for share in parts]
    assert sum(each**2 for each in allowed) ** 0.5 == pytest.approx(rule.precision)
    for share in (*parts, 1.0):
        steps = [1.0, 1.0 + 3 * rule.precision / share**0.5, 1.0]
        assert not rule.met(steps, share, 0.0)
        narrow = [1.0, 1.0 + rule.precision / share**0.5, 1.0]
        assert rule.met(narrow, share, 0.0)
        assert not rule.met(narrow, share, 5 * rule.precision / share**0.5)


def test_fewer_rounds_are_spread_over_as_much_time() -> None:
    walks = Walks("whole", "net-ab")
    walks.sample(StopRule(), **{"net-ab": SamplingGoal(shares=model(a=1, b=1))})
    assert Counter(walks.order) == {"whole": 8, "net-ab": 4}
    first, last = walks.order.index("net-ab"), len(walks.order) - walks.order[::-1].index("net-ab")
    assert last - first >= 9


def test_disturbed_rounds_do_not_count_but_end_some_time() -> None:
    assert Walks("busy").sample(StopRule()) == {"busy": 16}
    walks = Walks("busy-n")
    assert walks.sample(StopRule(max_rounds=24)) == {"busy-n": 36}


def test_the_time_for_preparing_is_booked_to_the_last_bit() -> None:
    times = PreparationTimes(["net"])
    times.load_s.update(lead=2.0, a=1.0, b=3.0)
    times.walk_s["net"] = 10.0
    assert times.by_key({"net": {"a", "b"}}) == {"a": 4.0, "b": 6.0}


def test_bricks_that_a_disturbed_host_leaves_unsure_get_further_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(mlp(), tmp_path, "net.onnx")

    def rounds(cache: str, **more: Any) -> int:
        conditions = Conditions(rule=StopRule(min_rounds=8, max_rounds=8, **more))
        with Bench(tmp_path / cache, runtime="fake", conditions=conditions) as bench:
            read = bench.read(path)
            bench.measure([read])
            found = bench.store.measurements.results(
                bench.target.key, bench.decompose(read).plan.keys
            )
        return max(len(each.rounds) for each in found.values() if isinstance(each, Measurement))

    quiet = rounds("quiet")
    monkeypatch.setenv("BRICKS_FAKE_UNREST", "230")  # samples vary by 92 %
    assert rounds("disturbed") > 2 * quiet
    assert rounds("disturbed once", retries=0) < 2 * quiet


def test_what_is_measured_again_has_further_rounds_beside_its_first(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "net.onnx")

    def counts(*, again: bool) -> dict[str, int]:
        conditions = Conditions(again=again)
        with Bench(tmp_path / "cache", runtime="fake", conditions=conditions) as bench:
            read = bench.read(path)
            bench.measure([read])
            keys = bench.decompose(read).plan.keys
            found = bench.store.measurements.results(bench.target.key, keys)
        measured = {key: each for key, each in found.items() if isinstance(each, Measurement)}
        return {key: len(each.rounds) for key, each in measured.items()}

    first, same, more = counts(again=False), counts(again=False), counts(again=True)
    assert first == same and first.keys() == more.keys()
    assert all(more[key] > first[key] for key in first)
