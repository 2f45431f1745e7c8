from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest
from brick_examples import conv, ideal_s, mixture, unary

from bricks.predict.effort import EFFORTS
from bricks.predict.features import BrickFeatures, extract_features
from bricks.predict.planner import Planner, Posterior

BRICKS = mixture()
KEYS = sorted(BRICKS)


def posteriors(
    features: Mapping[str, BrickFeatures] = BRICKS, measured: Collection[str] = ()
) -> dict[str, Posterior]:
    return {key: Posterior(ideal_s(t), key in measured) for key, t in features.items()}


def planner(
    counts: Mapping[str, Mapping[str, int]],
    features: Mapping[str, BrickFeatures] = BRICKS,
    measured: Collection[str] = (),
) -> Planner:
    keys = {key for count in counts.values() for key in count}
    mine = {key: features[key] for key in keys}
    return Planner(counts, mine, posteriors(mine, measured))


def zoo(models: int = 12) -> dict[str, dict[str, int]]:
    """Models with every so many bricks each, some of them several times."""
    return {f"m{i}": {key: 1 + n % 3 for n, key in enumerate(KEYS[i::models])}
            for i in range(models)}  # fmt: skip


@pytest.mark.parametrize("goal", [0.05, 0.1, 0.2])
def test_what_is_chosen_meets_the_goal_and_no_more(goal: float) -> None:
    chosen = planner(zoo()).choose(goal)
    assert 0 < len(chosen) < len(KEYS)
    assert len(set(chosen)) == len(chosen)
    assert planner(zoo(), measured=chosen).meets(goal, 1.001)
    assert not planner(zoo(), measured=chosen[: len(chosen) // 2]).meets(goal)


def test_measuring_one_after_the_other_is_the_same_as_all_at_once() -> None:
    step_by_step = planner(zoo())
    chosen = step_by_step.choose(0.0, max_count=40)
    at_once = planner(zoo(), measured=chosen)
    # In single precision; variances of streams are small differences of large ones.
    assert step_by_step.deviations() == pytest.approx(at_once.deviations(), rel=3e-3)


def test_more_measured_never_leaves_more_open() -> None:
    before = planner(zoo()).deviations()
    for count in (20, 60, 120):
        after = planner(zoo(), measured=KEYS[:count]).deviations()
        assert np.all(after <= before + 1e-6)
        before = after


def test_without_a_goal_all_is_chosen() -> None:
    counts = {"net": dict.fromkeys(KEYS[:30], 1)}
    assert sorted(planner(counts).choose(0.0)) == KEYS[:30]
    assert planner(counts, measured=KEYS[:30]).choose(0.0) == []


def test_what_is_measured_is_not_chosen() -> None:
    chosen = planner(zoo(), measured=KEYS[::2]).choose(0.05)
    assert not set(chosen) & set(KEYS[::2])


def test_what_costs_less_and_tells_as_much_comes_first() -> None:
    """Of two that are as good as equal, the one of a small share of every model."""
    small, large, known = conv(16, 32, 28), conv(16, 33, 28), conv(16, 512, 7)
    features = {b.key: extract_features(b) for b in (small, large, known)}
    counts = {"net": {small.key: 1, large.key: 60, known.key: 1}}
    chosen = planner(counts, features, measured=[known.key]).choose(0.12)
    assert chosen == [small.key]


def test_something_of_every_operator_is_measured_first() -> None:
    """A kernel's share of models is a guess as long as no brick of it was measured."""
    convs = [conv(16, 32, size) for size in (14, 28, 56)]
    rare = [unary("Exp", 100), unary("Exp", 200), unary("Sin", 100)]
    features = {b.key: extract_features(b) for b in (*convs, *rare)}
    counts = {"net": dict.fromkeys(features, 1)}
    fresh = planner(counts, features)
    assert not fresh.meets(1e3)
    chosen = fresh.choose(1e3)
    assert fresh.meets(1e3)
    assert sorted(features[key].operator for key in chosen) == ["Conv", "Exp", "Sin"]
    assert {rare[1].key, rare[2].key} < set(chosen)  # the larger one of those with Exp
    assert planner(counts, features, measured=chosen).choose(1e3) == []


def test_something_of_every_kernel_is_measured_first() -> None:
    dense, deep = conv(16, 32, 28), conv(32, 32, 28, group=32)
    features = {brick.key: extract_features(brick) for brick in (dense, deep)}
    fresh = planner({"net": {dense.key: 100, deep.key: 1}}, features)
    assert set(fresh.choose(1e3)) == set(features)


def test_nothing_of_one_kind_tells_of_another() -> None:
    a, b = conv(16, 32, 28), unary("Exp", 40_000)
    features = {brick.key: extract_features(brick) for brick in (a, b)}
    counts = {"net": {a.key: 1}}
    alone = planner(counts, features)
    (before,) = alone.deviations()
    both = Planner(counts, features, posteriors(features, measured={b.key}))
    assert both.deviations() == pytest.approx([before])


def test_so_many_are_chosen_at_least_where_there_are() -> None:
    enough = planner(zoo()).choose(0.2)
    more = planner(zoo()).choose(0.2, min_count=len(enough) + 20)
    assert more[: len(enough)] == enough
    assert len(set(more)) == len(more) == len(enough) + 20
    assert sorted(planner(zoo()).choose(0.2, min_count=10**6)) == KEYS
    assert len(planner(zoo()).choose(0.2, min_count=50, max_count=5)) == 5


def test_time_and_number_are_limits() -> None:
    every = planner(zoo()).choose(0.0)
    assert planner(zoo()).choose(0.0, max_count=7) == every[:7]
    assert planner(zoo()).choose(0.0, max_s=1e-9) == every[:1]  # some progress


def test_the_last_few_models_do_not_keep_all_others_waiting() -> None:
    unmeasured = conv(640, 640, 56, taps=7)
    features = {**BRICKS, unmeasured.key: extract_features(unmeasured)}
    counts = {**zoo(30), "strange": {unmeasured.key: 1}}
    assert unmeasured.key not in planner(counts, features).choose(0.1)
    assert planner({"strange": {unmeasured.key: 1}}, features).choose(0.1) == [unmeasured.key]


def test_a_dear_brick_of_one_model_comes_late_however_little_is_known_of_it() -> None:
    """Nine of ten models meet the goal without it, and a multiple of it is enough for its own."""
    cheap = [conv(2**i, 2**j, 14) for i in range(3, 9) for j in range(3, 9)]
    dear, known = unary("Exp", 1 << 24), [conv(16, 512, 7), unary("Exp", 100)]
    features = {brick.key: extract_features(brick) for brick in (*cheap, dear, *known)}
    counts = {f"m{i}": {brick.key: 1 for brick in cheap[i::9]} for i in range(9)}
    counts |= {"dear": {dear.key: 1}, "known": {brick.key: 1 for brick in known}}
    posteriors = {brick.key: Posterior(1e-4) for brick in cheap}
    posteriors |= {brick.key: Posterior(1e-4, measured=True) for brick in known}

    def planner_of(scale: float) -> Planner:
        return Planner(counts, features, {**posteriors, dear.key: Posterior(0.02, scale=scale)})

    alone = max(planner_of(1.0).deviations())
    scale = 0.2 / alone  # above the goal, and below what is out of the question
    fresh = planner_of(scale)
    chosen = fresh.choose(0.1)
    assert fresh.meets(0.1)
    assert chosen and dear.key not in chosen
    assert dear.key in planner_of(scale).choose(0.0)
    assert planner_of(20.0).choose(0.1)[-1] == dear.key  # no model is left in the dark


def test_more_effort_leaves_less_open() -> None:
    assert EFFORTS["full"].complete
    assert 0 < EFFORTS["balanced"].deviation < EFFORTS["quick"].deviation
