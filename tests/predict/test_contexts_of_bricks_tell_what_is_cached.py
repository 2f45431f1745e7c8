"""A brick's latency depends on the model around it, and so do predictions, where measured so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from brick_examples import dense, groups_of, ideal_s, mixture, tensor, weight, whole
from graphs import Maker
from plans import plan

from bricks.decompose.occurrence import Occurrence, Usage
from bricks.graph.types import TensorType
from bricks.predict.features import BrickFeatures, Context, contexts, extract_features, in_context
from bricks.predict.predictor import learn
from bricks.predict.roofline import Roofline

CACHED, UNCACHED = Context(working_set_bytes=1e6, repeats=8), Context(1e9, repeats=8)


def once(*keys: str) -> dict[str, Usage]:
    return {key: Usage(occurrences=1, copies=1) for key in keys}


def test_a_working_set_is_the_weights_and_the_largest_values() -> None:
    small, large = extract_features(dense(1, 100, 10)), extract_features(dense(1, 100, 1000))
    usage = {"small": Usage(occurrences=3, copies=2), "large": Usage(1, 1)}
    found = contexts([usage], {"small": small, "large": large}, unseen_bytes=7)
    weight_bytes = 2 * 4000 + 400_000 + 7
    assert found["small"].working_set_bytes == weight_bytes + 2 * (400 + 4000)
    assert found["large"].working_set_bytes == found["small"].working_set_bytes
    assert (found["small"].repeats, found["large"].repeats) == (3, 1)


def test_of_several_models_the_one_counts_of_which_a_brick_is_the_larger_share() -> None:
    shapes = {"shared": (8, 100, 100), "small": (8, 100, 10), "large": (64, 1000, 1000)}
    features = {key: extract_features(dense(*shape)) for key, shape in shapes.items()}
    models = [once("shared", "large"), once("shared", "small")]
    found = contexts(models, features)
    assert found["shared"] == contexts(models[1:], features)["shared"]
    assert contexts(reversed(models), features) == found


def test_of_a_table_only_the_rows_that_are_read_belong_to_the_working_set() -> None:
    maker = Maker()
    ports = [weight(maker, "w", 30_000, 128), maker.input("x", TensorType("INT64", (16,)))]
    maker.outputs.append(maker.node("Gather", ports, ["y"], [tensor(16, 128)]))
    table = whole(maker)
    found = in_context({table.key: extract_features(table)}, [once(table.key)])[table.key]
    assert table.numeric_weight_bytes == 30_000 * 128 * 4
    assert found.context.working_set_bytes < 10 * 16 * 128 * 4


def test_without_a_model_nothing_counts_as_cached() -> None:
    bare = extract_features(dense(1, 100, 10))
    assert in_context({"a": bare}, [])["a"] == bare
    assert bare.context.working_set_bytes == float("inf")


def test_copies_of_a_brick_are_its_sets_of_weights() -> None:
    places = [("a", 0), ("a", 1), ("b", 2), ("a", 1)]
    occurrences = [
        Occurrence(key, (i,), (i + 1,), weights=(number,)) for i, (key, number) in enumerate(places)
    ]
    assert plan(occurrences).usage == {"a": Usage(3, 2), "b": Usage(1, 1)}
    assert plan(occurrences).copies == {"a": 2, "b": 1}
    assert plan([("a", [0], [1]), ("a", [1], [2])]).copies == {"a": 2}  # nothing tells


def test_a_roofline_tells_cached_weights_from_uncached_ones() -> None:
    bricks = [extract_features(dense(1, terms, 1000)) for terms in range(100, 2000, 100)]
    features = [replace(t, context=context) for t in bricks for context in (CACHED, UNCACHED)]
    rates = {CACHED: 1e-11, UNCACHED: 2e-10}
    seconds = np.array([5e-6 + t.weight_bytes * rates[t.context] for t in features])
    fitted = Roofline.fit(features, seconds)
    unseen = extract_features(dense(1, 1234, 1000))
    cached_s, uncached_s, unknown_s = fitted.seconds(
        [replace(unseen, context=CACHED), replace(unseen, context=UNCACHED), unseen]
    )
    assert cached_s < uncached_s / 5
    assert unknown_s == pytest.approx(uncached_s, rel=0.05)


def taken_s(t: BrickFeatures) -> float:
    """A machine on which uncached weights, uncached code and rare bricks cost more."""
    uncached = t.context.working_set_bytes > 1e8
    rare_s = 3e-6 if t.context.repeats == 1 else 0.0
    return ideal_s(t) + rare_s + (2e-6 + t.weight_bytes * 2e-10 if uncached else 0.0)


def in_every(contexts: tuple[Context, ...]) -> dict[str, BrickFeatures]:
    """Bricks of a few kinds, each in one of these contexts."""
    return {
        key: replace(t, context=contexts[i % len(contexts)])
        for i, (key, t) in enumerate(sorted(mixture().items()))
    }


def predicted_s(
    known: Mapping[str, BrickFeatures], brick: BrickFeatures, *contexts: Context
) -> list[float]:
    predictor = learn(known, {key: taken_s(t) for key, t in known.items()}, groups_of(known))
    assert predictor is not None
    in_contexts = {str(i): replace(brick, context=context) for i, context in enumerate(contexts)}
    return [p.latency_s for p in predictor.predict(in_contexts).values()]


def test_weights_beyond_the_caches_are_predicted_slower_where_they_were_measured_so() -> None:
    unseen = extract_features(dense(1, 230, 400))
    cached_s, uncached_s = predicted_s(in_every((CACHED, UNCACHED)), unseen, CACHED, UNCACHED)
    assert cached_s < uncached_s
    for predicted, context in ((cached_s, CACHED), (uncached_s, UNCACHED)):
        assert predicted == pytest.approx(taken_s(replace(unseen, context=context)), rel=0.2)


def test_rare_bricks_are_predicted_slower_where_they_were_measured_so() -> None:
    rare = replace(CACHED, repeats=1)
    unseen = extract_features(dense(1, 80, 100))
    often_s, rare_s = predicted_s(in_every((CACHED, rare)), unseen, CACHED, rare)
    assert rare_s > often_s
