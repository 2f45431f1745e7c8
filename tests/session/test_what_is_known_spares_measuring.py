"""An effort chooses by all that is measured, also of models that it was not asked for."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from brick_examples import conv, dense, ideal_s, unary
from plans import plan
from store_examples import make_target, measure, open_with_target

from bricks.decompose.plan import Brick, Decomposition
from bricks.measure.campaign_result import CampaignResult, Progress
from bricks.measure.jobs import ModelJob
from bricks.predict.effort import EFFORTS
from bricks.predict.features import extract_features
from bricks.session import adaptive
from bricks.session.latencies import Latencies
from bricks.store import Store

TARGET = make_target()


def network(width: int) -> list[Brick]:
    """Convolutions, a product and an activation; of another width it shares none of them."""
    convs = [conv(c, 2 * c, side) for c in (width, width + 1) for side in (7, 14, 28, 56)]
    return [*convs, dense(1, 16 * width, 8 * width), unary("Exp", 1000 * width)]


def decomposition(number: int, bricks: Sequence[Brick]) -> Decomposition:
    """A model of bricks one after the other; it is none of the zoo's, so a family of its own."""
    places = [(brick.key, [i], [i + 1]) for i, brick in enumerate(bricks)]
    made = replace(plan(places), model=f"net{number}", digest=f"{number:064x}")
    return Decomposition(made, {brick.key: brick for brick in bricks}, 0.1)


def take(store: Store, made: Decomposition, keys: Collection[str]) -> None:
    for key in keys:
        measure(store, TARGET, [key], ideal_s(extract_features(made.bricks[key])))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of 16 networks of 10 bricks each, and of what each brick takes."""
    cache = tmp_path_factory.mktemp("known") / "cache"
    with open_with_target(cache, TARGET) as store:
        for number in range(16):
            made = decomposition(number, network(8 + 4 * number))
            store.plans.save(made, TARGET.key)
            take(store, made, made.bricks)
    return cache


@pytest.fixture
def store(known: Path, tmp_path: Path) -> Iterator[Store]:
    with Store.open(shutil.copytree(known, tmp_path / "cache")) as store:
        yield store


def measured(store: Store, bricks: Sequence[Brick], effort: str) -> set[str]:
    """What is measured of one model more."""
    made = decomposition(99, bricks)
    store.plans.save(made, TARGET.key)
    model: Any = SimpleNamespace(name="net99", digest=made.plan.digest)
    done = set[str]()

    def run(jobs: Sequence[ModelJob], _left_s: float | None, _progress: Progress) -> CampaignResult:
        (job,) = jobs
        known = store.measurements.results(TARGET.key, job.bricks)
        take(store, made, new := set(job.bricks) - known.keys())
        done.update(new)
        return CampaignResult({}, (), frozenset())

    latencies = Latencies(store, TARGET.key, "executed")
    job = ModelJob(model, made, whole=False)
    adaptive.AdaptiveMeasurement([job], latencies, EFFORTS[effort], None, lambda *_: None).run(run)
    return done


@pytest.mark.parametrize("effort", ["balanced", "quick"])
def test_a_model_like_others_is_added_with_hardly_a_brick(
    store: Store, effort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it shares none with them: theirs tell of its own."""
    monkeypatch.setattr(adaptive, "SOON_S", 0.0)
    assert len(measured(store, network(30), effort)) <= 2


def test_all_of_it_is_measured_where_nothing_is_to_be_predicted(store: Store) -> None:
    assert len(measured(store, network(30), "full")) == 10


def test_of_a_kernel_that_nobody_knows_something_is_measured(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive, "SOON_S", 0.0)
    strange = unary("Sin", 10)
    assert strange.key in measured(store, [*network(30), strange], "quick")


@pytest.mark.parametrize("effort", ["balanced", "quick"])
def test_what_is_soon_measured_is_measured_and_nothing_learned(
    store: Store, effort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning takes longer than measuring a few small bricks, and would know them less well."""
    monkeypatch.setattr(Latencies, "model", refuse)
    small = [unary("Sin", 10), unary("Exp", 30)]
    assert measured(store, small, effort) == {brick.key for brick in small}
    assert measured(store, small, effort) == set()


def test_what_takes_long_is_not_all_measured(store: Store) -> None:
    large = [conv(64, 64, side) for side in range(200, 230)]
    assert len(measured(store, large, "quick")) < len(large)


def refuse(_: Latencies) -> None:
    raise AssertionError("nothing is to be learned")
