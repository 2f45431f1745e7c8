from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bricks.errors import WorkerError
from bricks.measure import turn
from bricks.measure.campaign import Task, _spread_out
from bricks.measure.rounds import StopRule, sample_in_turn
from bricks.measure.walk import Step
from bricks.store import Claim


class Walks:
    """Walks whose samples are made up: steady ones, and ``noisy`` ones that never settle."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.order: list[str] = []

    def steps(self, name: str) -> list[Step]:
        return [Step(name, name, (), (), timed=True)]

    def walk(self, name: str, passes: int) -> dict[str, tuple[float, ...]]:
        self.order.append(name)
        if name == "broken":
            return {}
        noise = self.order.count(name) % 5 if name.startswith("noisy") else 0
        return {name: (1.0 + noise,) * passes}

    def sample(self, rule: StopRule, **before: int) -> Counter[str]:
        """How many rounds each walk got."""
        options: Any = {"rounds_before": before, "deadline": None, "on_round": lambda *_: None}
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


def test_the_time_for_preparing_is_booked_to_the_last_bit() -> None:
    steps = [Step(key, key, (), (), timed=key != "lead") for key in ("lead", "a", "b")]
    sampler: Any = SimpleNamespace(
        steps=lambda name: steps, load_s={"lead": 2.0, "a": 1.0, "b": 3.0}
    )
    claims = [Claim(key, (), 0.0) for key in ("a", "b", "elsewhere")]
    task = Task("net", {}, claims, StopRule(), None)
    assert _spread_out(10.0, sampler, "net", task) == {"a": 4.0, "b": 6.0}


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
