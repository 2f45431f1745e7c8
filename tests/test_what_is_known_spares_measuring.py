"""An effort chooses by all that is measured, also of models that it was not asked for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from brick_examples import conv, dense, ideal_s, unary
from commands import chain
from factories import save
from plans import plan
from store_examples import make_target, measure, open_with_target

import bricks
from bricks.decompose.plan import Brick, Decomposition
from bricks.estimate.effort import EFFORTS
from bricks.estimate.features import describe
from bricks.knowledge import Knowledge
from bricks.measure.campaign import Outcome, Progress
from bricks.measure.jobs import Job
from bricks.spending import Spending
from bricks.store import Store

TARGET = make_target()


def network(width: int) -> list[Brick]:
    """Convolutions, a product and an activation; of another width it shares none of them."""
    convs = [conv(c, 2 * c, side) for c in (width, width + 1) for side in (7, 14, 28, 56)]
    return [*convs, dense(1, 16 * width, 8 * width), unary("Exp", 1000 * width)]


def decomposition(number: int, found: Sequence[Brick]) -> Decomposition:
    """A model of bricks one after the other; it is none of the zoo's, so a family of its own."""
    places = [(brick.key, [i], [i + 1]) for i, brick in enumerate(found)]
    made = replace(plan(places), model=f"net{number}", digest=f"{number:064x}")
    return Decomposition(made, {brick.key: brick for brick in found}, 0.1)


def take(store: Store, made: Decomposition, keys: Collection[str]) -> None:
    for key in keys:
        measure(store, TARGET, [key], ideal_s(describe(made.bricks[key])))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Knows 16 networks of 10 bricks each, and what each brick takes."""
    store = open_with_target(tmp_path / "cache", TARGET)
    for number in range(16):
        made = decomposition(number, network(8 + 4 * number))
        store.save_decomposition(made, TARGET.key)
        take(store, made, made.bricks)
    return store


def measured(store: Store, found: Sequence[Brick], effort: str) -> set[str]:
    """What is measured of one model more."""
    made = decomposition(99, found)
    store.save_decomposition(made, TARGET.key)
    model: Any = SimpleNamespace(name="net99", digest=made.plan.digest)
    done = set[str]()

    def run(jobs: Sequence[Job], _left_s: float | None, _progress: Progress) -> Outcome:
        (job,) = jobs
        take(store, made, job.bricks)
        done.update(job.bricks)
        return Outcome({}, frozenset(), (), frozenset(), None)

    knowledge = Knowledge(store, TARGET.key, "executed")
    job = Job(model, made, whole=False)
    Spending([job], knowledge, EFFORTS[effort], None, lambda *_: None).run(run)
    return done


@pytest.mark.parametrize("effort", ["balanced", "quick"])
def test_a_model_like_others_is_added_with_hardly_a_brick(store: Store, effort: str) -> None:
    """Though it shares none with them: theirs tell of its own."""
    assert len(measured(store, network(30), effort)) <= 2


def test_all_of_it_is_measured_where_nothing_is_to_be_predicted(store: Store) -> None:
    assert len(measured(store, network(30), "full")) == 10


def test_of_a_kernel_that_nobody_knows_something_is_measured(store: Store) -> None:
    strange = unary("Sin", 10)
    assert strange.key in measured(store, [*network(30), strange], "quick")


@pytest.mark.parametrize(("effort", "learns"), [("full", False), ("balanced", True)])
def test_what_an_effort_chooses_by_is_learned_while_a_model_is_decomposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: str, learns: bool
) -> None:
    beside: list[bool] = []

    def learn(_: Knowledge) -> None:
        beside.append(threading.current_thread() is not threading.main_thread())
        raise OSError("is met where it matters")

    monkeypatch.setattr(Knowledge, "learn", learn)
    with bricks.Bench(tmp_path / "c", runtime="fake", effort=effort) as bench:
        model = bench.read(save(chain("Relu", "Tanh"), tmp_path))
        for _ in range(2):  # the second time it is known
            assert len(bench.decompose(model).bricks) == 2
    assert beside == [True] * learns
