"""Whatever is measured: it is claimed, sampled in turn, kept at once, and completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_examples import make_target, measure, open_with_target

from bricks.measure.conditions import Deadline
from bricks.measure.loop import ChargedRound, Loop, in_turn
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.store import Owner, Store
from bricks.store.owners import process_name

TARGET = make_target()


class Toy:
    """One key that is known after ``needs`` rounds; ``breaks`` is the one that ends all."""

    def __init__(self, key: str, needs: int, *, breaks: int = 10**9, why: str = "") -> None:
        self.key, self.min_rounds, self.rounds = key, needs, 0
        self._breaks = breaks
        self.failures = {key: why} if why else dict[str, str]()

    def sample(self) -> dict[str, ChargedRound]:
        self.rounds += 1
        if self.rounds == self._breaks:
            raise KeyboardInterrupt
        return {} if self.failures else {self.key: (Round((float(self.rounds),)), 1.0)}

    @property
    def active(self) -> bool:
        return not self.failures and self.rounds < self.min_rounds

    @property
    def known(self) -> set[str]:
        return {self.key} if self.rounds >= self.min_rounds and not self.failures else set()

    @property
    def share(self) -> float:
        return self.rounds / self.min_rounds


class Toys:
    """Toys in turn; ``turns`` has the rounds of each after every turn."""

    def __init__(self, *every: Toy) -> None:
        self.every = every
        self.turns: list[list[int]] = []
        self.shown: list[float] = []

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        assert rounds

    def judge(self, left: Sequence[Toy]) -> None:
        self.turns.append([toy.rounds for toy in self.every])

    def show(self, share: float) -> None:
        self.shown.append(share)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_with_target(tmp_path / "cache", TARGET) as opened:
        yield opened


def sampled(store: Store, *every: Toy, **more: Any) -> set[str]:
    loop = Loop(store, TARGET.key)
    claims = loop.claim([toy.key for toy in every])
    with loop.holding(claims):
        return loop.sample(Toys(*every), claims, **more)


def seconds(store: Store, key: str) -> list[float]:
    found = store.measurements.results(TARGET.key, [key])[key]
    assert isinstance(found, Measurement)
    return [sample.host_s for sample in found.samples]


def test_each_round_is_kept_and_what_is_known_is_done(store: Store) -> None:
    assert sampled(store, Toy("b1-a", 2), Toy("b1-b", 3)) == {"b1-a", "b1-b"}
    assert seconds(store, "b1-a") == [1.0, 2.0]
    assert seconds(store, "b1-b") == [1.0, 2.0, 3.0]
    assert store.contents.stats().open_claims == 0


def test_an_interruption_loses_nothing(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        sampled(store, Toy("b1-a", 2), Toy("b1-b", 9, breaks=4))
    assert store.measurements.results(TARGET.key, ["b1-a", "b1-b"]) == {}
    claims = Loop(store, TARGET.key).claim(["b1-a", "b1-b"])  # they were given back
    assert [len(claim.rounds) for claim in claims] == [1, 3]


def test_what_takes_long_is_done_as_soon_as_it_is_known(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        sampled(store, Toy("b1-a", 2), Toy("b1-b", 3, breaks=3), at_once=True)
    assert seconds(store, "b1-a") == [1.0, 2.0]


def test_what_fails_is_kept_with_its_reason(store: Store) -> None:
    assert sampled(store, Toy("b1-a", 1), Toy("b1-b", 1, why="there is no kernel")) == {"b1-a"}
    found = store.measurements.results(TARGET.key, ["b1-b"])
    assert found == {"b1-b": Failure("b1-b", "there is no kernel")}


def test_what_is_known_already_gets_further_rounds(store: Store) -> None:
    measure(store, TARGET, ["b1-a"], 0.5)
    loop = Loop(store, TARGET.key)
    assert loop.sample(Toys(Toy("b1-a", 2)), []) == set()
    assert seconds(store, "b1-a") == [0.5, 1.0, 2.0]


def test_what_another_process_measures_is_left_to_it_or_waited_for(store: Store) -> None:
    other = Owner.current()
    store.claims.claim(TARGET.key, ["b1-b"], other)
    loop = Loop(store, TARGET.key)
    claimed = []
    for claims in loop.claims(["b1-a", "b1-b"]):
        claimed += [claim.key for claim in claims]
        store.claims.fail(TARGET.key, "b1-a", "of no use", loop.owner)
    assert claimed == ["b1-a"]

    waited_for: list[str] = []

    def waiting(owners: Sequence[str]) -> None:
        waited_for.extend(owners)
        store.claims.fail(TARGET.key, "b1-b", "of no use", other)

    assert list(loop.claims(["b1-a", "b1-b"], waiting=waiting)) == []
    assert loop.unfinished == set()
    assert waited_for == [process_name(other.pid)]


def test_when_the_time_is_up_nothing_is_claimed(store: Store) -> None:
    loop = Loop(store, TARGET.key)
    assert list(loop.claims(["b1-a"], Deadline.after(0.0))) == []
    assert loop.unfinished == {"b1-a"}
    assert store.contents.stats().open_claims == 0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_all_are_done_at_the_same_time(needs: list[int]) -> None:
    """So all meet the same drift: after each turn, everything is as far as everything else."""
    toys = Toys(*(Toy(f"b1-{number}", each) for number, each in enumerate(needs)))
    in_turn(toys, lambda rounds: None)
    assert [toy.rounds for toy in toys.every] == needs
    assert len(toys.turns) == max(needs)
    for turn, rounds in enumerate(toys.turns, 1):
        for taken, needed in zip(rounds, needs, strict=True):
            assert 0 <= taken / needed - turn / max(needs) < 1 / needed
    assert toys.shown[-1] == 1.0
