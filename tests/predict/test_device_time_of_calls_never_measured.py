"""Device time of calls that were never measured, from those that were, and on another card."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from device_calls import COLD_BYTES, measured_by, product_brick, sum_brick, view_brick
from refusals import refused

from bricks.decompose.plan import Brick
from bricks.errors import UsageError
from bricks.predict import learned_file
from bricks.predict.kernels.device_roofline import products_s
from bricks.predict.kernels.features import has_known_work, kernel_features
from bricks.predict.kernels.kernel_predictor import KernelPredictor, total_s, transferred
from bricks.predict.kernels.learned_kernels import HostTimes, LearnedKernels, read, written
from bricks.system.cards import card_named

H200, H100 = card_named("h200"), card_named("h100")
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
PRODUCTS = [product_brick(m, n, 1024) for m in SIZES for n in SIZES]
SUMS = [sum_brick(1 << exponent) for exponent in range(10, 28)]
BRICKS = {brick.key: brick for brick in (*PRODUCTS, *SUMS)}
STATES = (None, 0, COLD_BYTES)
HOST = HostTimes({"mm": 30e-6, "view": 4e-6}, 9e-6, 1.5, 4.0)


def law(brick: Brick) -> float:
    """A card that reaches 60 % of its peaks with tiles, and takes 2 µs for the least kernel."""
    compute_s = sum(products_s([part.work for part in kernel_features(brick)], H200))
    memory_s = brick.bytes_moved / H200.bandwidth_bytes_per_s
    return 2e-6 + (compute_s + memory_s) / 0.6


@pytest.fixture(scope="module")
def predictor() -> KernelPredictor:
    return KernelPredictor.learn(BRICKS, measured_by(law, BRICKS.values(), 2), H200.accelerator)


@pytest.mark.parametrize("brick", [product_brick(768, 3072, 1024), sum_brick(3 << 20)])
def test_calls_never_measured_take_what_the_measured_ones_tell(
    brick: Brick, predictor: KernelPredictor
) -> None:
    prediction = predictor.predict(brick)
    assert brick.key not in BRICKS and prediction.known
    for displaced in STATES:
        assert prediction.device_s[displaced].value == pytest.approx(law(brick), rel=0.1)
        assert prediction.device_s[displaced].holds(law(brick))


@pytest.mark.parametrize(
    ("operator", "known"),
    [("exp", True), ("_foreach_abs", True), ("reflection_pad2d", True), ("_linalg_svd", False)],
)
def test_a_kind_of_kernels_is_known_or_not(operator: str, known: bool) -> None:
    assert has_known_work(sum_brick(1 << 10, operator)) is known


def test_kernels_are_as_many_as_measured_calls_of_the_operator_start(
    predictor: KernelPredictor,
) -> None:
    prediction = predictor.predict(sum_brick(12345))
    assert prediction.count == 2
    for displaced, kernels in prediction.kernels_by_displaced.items():
        seconds = sum(kernel.device_s for kernel in kernels)
        assert len(kernels) == 2
        assert seconds == pytest.approx(prediction.device_s[displaced].value)


def test_views_start_no_kernel(predictor: KernelPredictor) -> None:
    prediction = predictor.predict(view_brick(1 << 20))
    assert prediction.count == 0
    assert not prediction.device_s and not prediction.kernels_by_displaced


def test_operators_that_nobody_measured_are_less_certain(predictor: KernelPredictor) -> None:
    known = predictor.predict(sum_brick(3 << 20))
    other = predictor.predict(sum_brick(3 << 20, "atan2"))
    assert known.known and not other.known
    assert other.device_s[None].relative > known.device_s[None].relative
    assert other.device_s[None].holds(known.device_s[None].value)


def test_another_card_is_predicted_by_its_published_peaks(predictor: KernelPredictor) -> None:
    stream, product = sum_brick(1 << 27), product_brick(4096, 4096, 4096)
    ratio = H200.bandwidth_bytes_per_s / H100.bandwidth_bytes_per_s
    for brick, slower in ((stream, ratio), (product, 1.0)):
        here, there = predictor.predict(brick), predictor.predict(brick, H100)
        assert there.device_s[None].value == pytest.approx(
            slower * here.device_s[None].value, rel=0.1
        )


def test_errors_of_one_operator_are_common_in_a_sum(predictor: KernelPredictor) -> None:
    small, large = (predictor.predict(sum_brick(size)) for size in (1 << 20, 1 << 22))
    both = total_s([(small, 3), (large, 1)], None)
    apart = 3 * small.device_s[None].high + large.device_s[None].high
    assert both.value == pytest.approx(3 * small.device_s[None].value + large.device_s[None].value)
    assert both.high == pytest.approx(apart)


def test_a_card_without_published_peaks_is_refused() -> None:
    unlisted = replace(H200.accelerator, name="No GPU of this table")
    with refused(UsageError, "No GPU of this table"):
        KernelPredictor.learn(BRICKS, measured_by(law, BRICKS.values()), unlisted)


def test_measured_calls_scale_with_what_bounds_them() -> None:
    stream, product = sum_brick(1 << 27), product_brick(4096, 4096, 4096)
    tiny = sum_brick(64)
    own = {brick.key: brick for brick in (stream, product, tiny)}
    l40s = card_named("l40s")
    there = transferred(own, measured_by(law, own.values()), H200, l40s)
    ratios = [there[key].device_s[None].value / law(brick) for key, brick in own.items()]
    bandwidths = H200.bandwidth_bytes_per_s / l40s.bandwidth_bytes_per_s
    assert ratios[0] > 0.6 * bandwidths
    peaks = H200.flops_per_s["bf16"] / l40s.flops_per_s["bf16"]
    assert 0.75 * peaks < ratios[1] <= peaks
    assert ratios[2] < 1.1


def test_a_call_that_reaches_little_of_a_high_peak_may_reach_more_of_a_low_one() -> None:
    product, v100 = product_brick(4096, 4096, 4096), card_named("v100")
    peaks = H200.flops_per_s["bf16"] / v100.flops_per_s["fp32"]
    ratios = []
    for share in (1.0, 3.0):
        slow = measured_by(lambda brick, share=share: share * law(brick), [product])
        there = transferred({product.key: product}, slow, H200, v100)
        ratios.append(there[product.key].device_s[None].value / (share * law(product)))
    assert ratios[1] < 0.5 * ratios[0] and ratios[0] < peaks


def test_calls_that_were_measured_twice_count_by_both(predictor: KernelPredictor) -> None:
    twice, once = measured_by(law, BRICKS.values(), 2), SUMS[9]
    longer = measured_by(lambda brick: 1.2 * law(brick), [once], 2)[once.key]
    bricks = {**BRICKS, "b1-again": replace(once, key="b1-again")}
    both = KernelPredictor.learn(bricks, {**twice, "b1-again": longer}, H200.accelerator)
    before, after = (of.predict(once).device_s[None] for of in (predictor, both))
    assert law(once) < after.value < 1.2 * law(once)
    assert after.value > before.value


def test_a_file_of_what_was_learned_predicts_as_learning_does(predictor: KernelPredictor) -> None:
    content = written({"t1-a": LearnedKernels(predictor, HOST)})
    kept = read(content, "t1-a", H200.accelerator)
    assert kept is not None and kept.host == HOST
    others = (product_brick(768, 3072, 1024), sum_brick(3 << 20), sum_brick(3 << 20, "atan2"))
    bricks = {brick.key: brick for brick in (*others, view_brick(1 << 20))}
    for card in (None, H100):
        anew = predictor.predictions(bricks, card)
        assert kept.predictor.predictions(bricks, card) == anew


def test_a_file_of_another_format_or_version_is_left_alone(predictor: KernelPredictor) -> None:
    content = written({"t1-a": LearnedKernels(predictor, HOST)})
    assert read(content, "t1-b", H200.accelerator) is None
    assert learned_file.read(content, "t1-a", "operators") is None
    assert read(learned_file.written({}, "operators"), "t1-a", H200.accelerator) is None
    with np.load(io.BytesIO(content)) as arrays:
        about = arrays["about"].tobytes().replace(b'"version": 2', b'"version": 1')
        later = io.BytesIO()
        np.savez(later, **{**arrays, "about": np.frombuffer(about, np.uint8)})
    assert read(later.getvalue(), "t1-a", H200.accelerator) is None
