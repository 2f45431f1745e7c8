"""What was never measured is no faster than the machine; weights take as long as others do."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from brick_examples import blockwise, conv, dense, latencies, learned, mixture, traits_of, unary

from bricks.decompose.plan import Brick
from bricks.predict.features import (
    PRODUCT,
    SIZES,
    BrickFeatures,
    Context,
    extract_features,
)
from bricks.predict.learned_file import Learned, read, written
from bricks.predict.predictor import Predictor
from bricks.predict.roofline import ENOUGH, NO_LIMITS, RooflineLimits


def features(brick: Brick, working_set_bytes: float = math.inf) -> BrickFeatures:
    return replace(extract_features(brick), context=Context(working_set_bytes))


def machine() -> dict[str, BrickFeatures]:
    """A few hundred bricks, products of large weights among them."""
    large = [dense(1, t, c) for t in range(512, 4096, 512) for c in (256, 512)]
    small = [unary(op, n) for op in ("Tanh", "Neg", "Abs") for n in range(1000, 60_000, 1500)]
    return {**mixture(), **traits_of([*large, *small])}


@cache
def predictor() -> Predictor:
    known = machine()
    return learned(known, latencies(known))


def sizes(of: BrickFeatures) -> dict[str, float]:
    return {name: 2**size for name, size in zip(SIZES[of.kind], of.sizes, strict=True)}


def test_limits_are_the_highest_rates_that_were_measured() -> None:
    slow, fast = features(dense(64, 512, 512)), features(dense(1, 4096, 4096))
    usual = [slow] * ENOUGH
    result = RooflineLimits.fit([*usual, fast], np.array([0.01] * ENOUGH + [0.002]))
    assert result.flops_per_s == pytest.approx(max(slow.flops / 0.01, fast.flops / 0.002))
    assert result.bytes_per_s == pytest.approx(fast.weight_bytes / 0.002)


def test_weights_in_the_caches_show_no_rate_of_memory() -> None:
    cached = features(dense(1, 4096, 4096), working_set_bytes=2**20)
    result = RooflineLimits.fit([cached] * ENOUGH, np.full(ENOUGH, 0.001))
    assert result.bytes_per_s == math.inf
    assert result.min_latency_s([cached]) == pytest.approx([0.001])  # by its operations


def test_few_measurements_show_no_limits() -> None:
    one = features(dense(64, 512, 512))
    assert RooflineLimits.fit([one] * (ENOUGH - 1), np.full(ENOUGH - 1, 0.01)) == NO_LIMITS
    assert NO_LIMITS.min_latency_s([one]) == pytest.approx([0.0])


def test_no_prediction_is_faster_than_the_machine() -> None:
    result = predictor()
    unseen = {
        "product": features(blockwise(1, 32768, 32768)),
        "convolution": features(conv(4096, 4096, 200)),
    }
    for key, prediction in result.predict(unseen).items():
        min_latency_s = float(result.limits.min_latency_s([unseen[key]])[0])
        assert min_latency_s > 0
        assert prediction.latency_s >= min_latency_s
        assert prediction.spread().low >= min_latency_s


def test_products_of_quantised_weights_are_products() -> None:
    result = extract_features(blockwise(3, 256, 96, bits=4))
    assert result.kind == PRODUCT
    named = sizes(result)
    assert [named[n] for n in ("batch", "rows", "columns", "terms")] == pytest.approx(
        [1, 3, 96, 256]
    )
    assert result.weight_bytes == 96 * 256 / 2 + 96 * 8 * 4


def test_kernels_of_quantised_weights_differ_by_bits_and_by_how_they_compute() -> None:
    kernels = [
        extract_features(brick).kernel
        for brick in (
            dense(1, 256, 96),
            blockwise(1, 256, 96),
            blockwise(1, 256, 96, bits=4),
            blockwise(1, 256, 96, level=0),
        )
    ]
    assert len({*kernels}) == len(kernels)


def test_weights_that_nobody_measured_take_as_long_as_those_that_were() -> None:
    """A product of a vector reads its weights once: their bytes decide, whatever they hold."""
    measured, unseen = features(dense(1, 4096, 4096)), features(blockwise(1, 4096, 16384))
    per_byte = latencies({"it": measured})["it"] / measured.weight_bytes
    result = predictor().predict({"it": unseen})["it"]
    assert result.latency_s / unseen.weight_bytes == pytest.approx(per_byte, rel=0.5)
    assert result.log_sd >= 0.7


def test_limits_are_kept_with_what_was_learned() -> None:
    few = learned(mixture(), latencies(mixture()))
    for limits in (RooflineLimits(1e9, 2e9), NO_LIMITS, RooflineLimits(1e9)):
        kept = Learned(replace(few, limits=limits), 0.5, {})
        result = read(written({"t": kept}, "executed"), "t", "executed")
        assert result is not None
        assert result.predictor.limits == limits
        assert result.slowness == 0.5
