from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bricks.errors import WorkerError
from bricks.measure import turn
from bricks.measure.campaign import _spread_out, demands
from bricks.measure.rounds import Goal, Progressing, StopRule, sample_in_turn
from bricks.measure.sampler import Taken
from bricks.measure.walk import Step


class Walks:
    """Walks whose samples are made up: steady ones, and ``noisy`` ones that never settle.

    A walk has one brick for each letter after a dash, all alike but ``n``, which is noisy. Every
    second round of ``busy`` ones is disturbed. From round ``turns_at`` on, the machine is another.
    """

    turns_at = 10**9

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.order: list[str] = []
        self.rounds: Counter[str] = Counter()

    def steps(self, name: str) -> list[Step]:
        return [Step(name, name, (), (), timed=True)]

    def walk(self, name: str, passes: int, keys: Collection[str] | None = None) -> Taken:
        self.order.append(name)
        if name == "broken":
            return Taken({})
        turn = self.order.count(name)
        samples = {}
        for key in name.partition("-")[2] or [name]:
            noisy = key.startswith("noisy") or key == "n"
            if keys is None or key in keys:
                samples[key] = (1.0 + (turn % 5 if noisy else 0),) * passes
                self.rounds[key] += 1
        waited = 0.5 if name.startswith("busy") and turn % 2 else 0.0
        reference_s = 1e-3 if turn < self.turns_at else 2e-3
        return Taken(samples, reference_s, waited, reference_s)

    def sample(self, rule: StopRule, **before: int) -> Counter[str]:
        """How many rounds each walk got."""
        goals = {name: Goal(before=(1e-3,) * n) for name, n in before.items()}
        options: Any = {"goals": goals, "deadline": None, "on_round": lambda *_: None}
        assert sample_in_turn(self, rule, **options)
        return Counter(self.order)


def test_nobody_goes_on_without_the_others() -> None:
    rule = StopRule(min_rounds=8, max_rounds=24)
    assert Walks("steady", "noisy").sample(rule) == {"steady": 24, "noisy": 24}
    assert Walks("steady", "other").sample(rule) == {"steady": 8, "other": 8}


def test_rounds_change_direction() -> None:
    walks = Walks("a", "b")
    walks.sample(StopRule(min_rounds=6, max_rounds=6))
    assert "".join(walks.order) == "abba" * 3


def test_a_walk_of_which_nothing_runs_ends_alone() -> None:
    walks = Walks("broken", "steady")
    assert walks.sample(StopRule()) == {"broken": 1, "steady": 8}


@pytest.mark.parametrize(("before", "more"), [(0, 8), (1, 7), (2, 6), (3, 9), (7, 9), (20, 4)])
def test_precision_is_looked_at_every_four_rounds(before: int, more: int) -> None:
    assert Walks("steady").sample(StopRule(precision=0.01), steady=before) == {"steady": more}


def test_a_brick_that_adds_little_rests_while_the_others_go_on() -> None:
    walks = Walks("net-abn")
    walks.sample(StopRule(precision=0.01))
    assert walks.rounds == {"a": 8, "b": 8, "n": 24}


def test_what_a_brick_adds_is_what_its_most_demanding_model_says() -> None:
    walks = Walks("net-an")
    goal = Goal(demands={"n": 1.0, "a": 1.0}, known_s=1e6)  # a small part of a large model
    assert sample_in_turn(
        walks,
        StopRule(),
        goals={"net-an": goal},
        deadline=None,
        on_round=lambda *_: None,
    )
    assert walks.rounds == {"a": 8, "n": 8}


def test_disturbed_rounds_do_not_count_but_end_some_time() -> None:
    assert Walks("busy").sample(StopRule()) == {"busy": 16}
    walks = Walks("busy-n")
    assert walks.sample(StopRule(max_rounds=24)) == {"busy-n": 36}


def test_rounds_count_in_the_state_that_prevails() -> None:
    walks = Walks("net-ab")
    walks.turns_at = 6  # five rounds in one state, and eight in the other are needed
    assert walks.sample(StopRule(precision=0.01)) == {"net-ab": 13}


def test_a_brick_that_rests_in_one_state_goes_on_in_another() -> None:
    walks = Walks("net-an")
    walks.turns_at = 13
    walks.sample(StopRule(precision=0.01, max_rounds=24))
    assert walks.rounds["n"] == 36
    assert walks.rounds["a"] > 8


def test_what_was_known_well_enough_in_one_state_may_not_be_in_another() -> None:
    def taken(state_s: float, *keys: str) -> Taken:
        return Taken(dict.fromkeys(keys, (1.0,)), state_s, 0.0, state_s)

    walk = Progressing("net", Goal())
    for _ in range(8):
        walk.advance(taken(1e-3, "a", "b"))
    walk.look(0.01, 1e-3, least=6)
    assert walk.content
    for _ in range(8):
        walk.advance(taken(2e-3, "b"))  # "a" rests
    walk.look(0.01, 2e-3, least=6)
    assert not walk.content
    assert walk.active is None


def test_demands_compare_models_by_their_work() -> None:
    large = job("large", {"a": 1, "b": 1}, flops=2000)
    small = job("small", {"a": 2}, flops=2000)
    found = demands([large, small])
    assert found["small"] == {"a": 2.0}
    assert found["large"]["b"] == 1.0
    assert found["large"]["a"] == pytest.approx(2.0, rel=0.02)  # it is all of the small one


def job(name: str, counts: dict[str, int], flops: int) -> Any:
    brick = SimpleNamespace(flops=flops, bytes_moved=0)
    return SimpleNamespace(
        model=SimpleNamespace(digest=name),
        decomposition=SimpleNamespace(
            plan=SimpleNamespace(counts=counts), bricks=dict.fromkeys(counts, brick)
        ),
    )


def test_the_time_for_preparing_is_booked_to_the_last_bit() -> None:
    steps = [Step(key, key, (), (), timed=key != "lead") for key in ("lead", "a", "b")]
    sampler: Any = SimpleNamespace(
        steps=lambda name: steps, load_s={"lead": 2.0, "a": 1.0, "b": 3.0}
    )
    assert _spread_out(10.0, sampler, "net") == {"a": 4.0, "b": 6.0}


def test_the_lock_is_no_link_to_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn.tempfile, "gettempdir", lambda: str(tmp_path))
    with turn.timing_turn():
        (lock,) = tmp_path.iterdir()
        assert lock.stat().st_mode & 0o777 == 0o600
    lock.unlink()
    lock.symlink_to(tmp_path / "victim")
    with pytest.raises(WorkerError, match="lock file"), turn.timing_turn():
        pass
    assert not (tmp_path / "victim").exists()
