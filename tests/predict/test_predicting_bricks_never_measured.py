from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from brick_examples import (
    conv,
    dense,
    groups_of,
    halves,
    ideal_s,
    latencies,
    learned,
    mixture,
    tensor,
    traits_of,
    unary,
    weight,
    whole,
)
from graphs import Maker

from bricks.decompose.plan import Brick
from bricks.predict.effort import MIN
from bricks.predict.features import (
    CONVOLUTION,
    PRODUCT,
    SIZES,
    STREAM,
    TAGS,
    BrickFeatures,
    extract_features,
)
from bricks.predict.predictor import HeldOutError, bias_of, learn
from bricks.predict.roofline import Roofline

# The domain of what works on channels in blocks.
NCHWC = "com.microsoft.nchwc"


def transposed(shape: tuple[int, ...], perm: tuple[int, ...]) -> BrickFeatures:
    maker = Maker()
    kinds = [tensor(*(shape[axis] for axis in perm))]
    ports = [maker.input("x", tensor(*shape))]
    maker.outputs.append(maker.node("Transpose", ports, ["y"], kinds, perm=perm))
    return extract_features(whole(maker))


def gemm(rows: int, terms: int, columns: int) -> Brick:
    maker = Maker()
    ports = [maker.input("x", tensor(rows, terms)), weight(maker, "w", terms, columns)]
    maker.outputs.append(maker.node("Gemm", ports, ["y"], [tensor(rows, columns)]))
    return whole(maker)


def size(features: BrickFeatures, name: str) -> float:
    return 2 ** features.sizes[SIZES[features.kind].index(name)]


def test_traits_of_a_convolution_are_what_its_loops_see() -> None:
    found = extract_features(conv(32, 48, 14))
    assert found.kind == CONVOLUTION
    named = {name: size(found, name) for name in SIZES[CONVOLUTION]}
    assert named == pytest.approx(
        {"pixels": 196, "width": 14, "terms": 32, "outputs": 48, "groups": 1,
         "taps": 3 * (2 + 12 * 3 + 2) / 14, "stride": 1, "dilation": 1}
    )  # fmt: skip
    assert found.flops == pytest.approx(2 * size(found, "taps") * 32 * 48 * 196)
    assert found.weight_bytes == 4 * 9 * 32 * 48


@pytest.mark.parametrize(
    ("brick", "form"),
    [
        (conv(32, 48, 14), "dense"),
        (conv(32, 48, 14, taps=1), "pointwise"),
        (conv(32, 32, 14, group=32), "depthwise"),
        (conv(32, 32, 14, group=4), "grouped"),
        (conv(32, 32, 14, group=4, taps=1), "grouped pointwise"),
        (conv(3, 32, 14), "image"),
        (conv(12, 32, 14), "dense"),
        (conv(12, 32, 14, taps=1, domain=NCHWC), "narrow"),
        (conv(16, 32, 14, taps=1, domain=NCHWC), "pointwise"),
    ],
)
def test_convolutions_are_told_apart_by_their_form(brick: Brick, form: str) -> None:
    assert extract_features(brick).tag("form") == form


@pytest.mark.parametrize(
    ("brick", "taps"),
    [
        (conv(8, 8, 14, taps=1), 1),
        (conv(8, 8, 16, dilation=4), 3 * (1 + 2 * 12 / 16)),
        (conv(8, 8, 16, dilation=20), 3),  # of three rows, only one ever lies in the data
    ],
)
def test_rows_of_taps_in_the_padding_are_no_work(brick: Brick, taps: float) -> None:
    assert size(extract_features(brick), "taps") == pytest.approx(taps)
    assert extract_features(brick).flops == pytest.approx(
        2 * taps * 8 * 8 * size(extract_features(brick), "pixels")
    )


def test_traits_of_a_product_are_its_three_sizes() -> None:
    found = extract_features(dense(16, 100, 200))
    assert found.kind == PRODUCT
    assert [size(found, name) for name in ("rows", "columns", "terms")] == pytest.approx(
        [16, 200, 100]
    )
    assert found.tag("weight") == "True"


def test_products_share_the_kernels_of_their_data_type() -> None:
    """A vector's product streams the matrix, whatever the operator is called."""
    matrix, vector = extract_features(dense(16, 100, 200)), extract_features(dense(1, 100, 200))
    assert matrix.kernel == extract_features(dense(64, 30, 40)).kernel
    assert matrix.kernel == extract_features(gemm(16, 100, 200)).kernel
    assert vector.kernel != matrix.kernel


@pytest.mark.parametrize(
    ("shape", "perm", "pattern", "run"),
    [
        ((1, 8, 1, 5), (2, 1, 0, 3), "same", 40),
        ((4, 6, 5), (0, 2, 1), "one inside", 5),
        ((4, 6, 5), (1, 0, 2), "one outside", 5),
        ((2, 3, 4, 5), (3, 1, 2, 0), "several inside", 5),
        ((2, 3, 4, 5), (2, 1, 0, 3), "several outside", 5),
    ],
)
def test_transposing_is_told_by_what_moves(
    shape: tuple[int, ...], perm: tuple[int, ...], pattern: str, run: int
) -> None:
    found = transposed(shape, perm)
    assert (found.tag("pattern"), size(found, "run")) == (pattern, pytest.approx(run))


def test_of_several_nodes_the_heaviest_is_described_and_all_are_named() -> None:
    maker = Maker()
    ports = [maker.input("x", tensor(16, 100)), weight(maker, "w", 100, 200)]
    maker.node("MatMul", ports, ["h"], [tensor(16, 200)])
    maker.outputs.append(maker.node("Relu", ["h"], ["y"], [tensor(16, 200)]))
    found = extract_features(whole(maker))
    assert (found.kind, found.operator) == (PRODUCT, "MatMul+Relu")
    assert size(found, "columns") == pytest.approx(200)


def test_traits_stand_where_their_names_say() -> None:
    for found in mixture().values():
        assert len(found.sizes) == len(SIZES[found.kind])
        assert len(found.tags) == len(TAGS[found.kind])


def test_a_roofline_finds_the_rates_of_a_machine_that_has_them() -> None:
    features = [t for t in mixture().values() if t.kind == STREAM]
    fitted = Roofline.fit(features, np.array([ideal_s(t) for t in features]))
    unseen = [extract_features(unary("Relu", n)) for n in (2000, 20_000, 200_000)]
    assert fitted.seconds(unseen) == pytest.approx([ideal_s(t) for t in unseen], rel=0.1)


def test_what_lies_between_measured_bricks_is_predicted_between_them() -> None:
    known, unseen = halves(mixture())
    found = learned(known, latencies(known)).predict(unseen)
    errors = [abs(math.log(found[key].latency_s / ideal_s(t))) for key, t in unseen.items()]
    assert np.median(errors) < 0.03
    assert np.quantile(errors, 0.95) < 0.15


def test_more_of_the_same_takes_longer() -> None:
    predictor = learned(mixture(), latencies(mixture()))
    ladder = traits_of(unary("Relu", n) for n in range(1750, 58_000, 3000))
    seconds = [p.latency_s for p in predictor.predict(ladder).values()]
    assert seconds == sorted(seconds)


def test_the_order_of_what_is_given_does_not_matter() -> None:
    known, unseen = halves(mixture())
    latency_s = latencies(known)

    def turned(mapping: Mapping[str, object]) -> dict[str, object]:
        return dict(reversed(mapping.items()))

    first = learn(known, latency_s, groups_of(known))
    again = learn(turned(known), turned(latency_s), turned(groups_of(known)))
    assert first is not None
    assert again is not None
    assert first.bias == again.bias
    one, other = first.predict(unseen), again.predict(turned(unseen))
    assert [*one] == [*unseen]
    assert [*other] == [*reversed(unseen)]
    for key in unseen:  # sums of the same numbers in another order
        assert other[key].latency_s == pytest.approx(one[key].latency_s, rel=1e-4)
        assert other[key].log_sd == pytest.approx(one[key].log_sd, rel=1e-3)


def test_the_same_again_gives_the_same_to_the_last_digit() -> None:
    known, unseen = halves(mixture())
    found = [learned(known, latencies(known)).predict(unseen) for _ in range(2)]
    assert found[0] == found[1]


def test_an_operator_that_was_never_measured_has_a_wide_interval() -> None:
    predictor = learned(mixture(), latencies(mixture()))
    known, strange = extract_features(unary("Relu", 20_300)), extract_features(unary("Erf", 20_300))
    found = predictor.predict({"known": known, "strange": strange})
    assert found["strange"].latency_s > 0
    assert found["strange"].log_sd >= 0.7 > 2 * found["known"].log_sd


def test_a_kernel_that_was_never_measured_has_a_wide_interval() -> None:
    predictor = learned(mixture(), latencies(mixture()))
    dense, depthwise = (
        extract_features(conv(32, 32, 20)),
        extract_features(conv(32, 32, 20, group=32)),
    )
    found = predictor.predict({"dense": dense, "depthwise": depthwise})
    assert found["depthwise"].log_sd >= 0.7 > 2 * found["dense"].log_sd


def test_a_kernel_that_one_family_alone_has_tells_nothing_of_how_far_families_are_off() -> None:
    odd = traits_of(conv(32, 32, side, group=32) for side in (14, 28, 56))
    usual = {key: t for key, t in mixture().items() if t.kind == CONVOLUTION}
    groups = {f"family {i}": sorted(usual)[i::4] for i in range(4)} | {"odd": sorted(odd)}
    without = learn(usual, latencies(usual), groups)
    slow = {key: 30 * s for key, s in latencies(odd).items()}
    found = learn({**usual, **odd}, {**latencies(usual), **slow}, groups)
    assert without is not None and found is not None
    assert found.bias == pytest.approx(without.bias, rel=0.3)


def test_a_kind_of_which_nothing_was_measured_has_a_wide_interval() -> None:
    streams = {key: t for key, t in mixture().items() if t.kind == STREAM}
    found = learned(streams, latencies(streams)).predict({"c": extract_features(conv(32, 32, 14))})
    assert found["c"].latency_s > 0
    assert found["c"].log_sd >= 0.7


def test_what_is_near_a_measured_brick_is_surer_than_what_is_far_from_all() -> None:
    predictor = learned(mixture(), latencies(mixture()))
    near, far = extract_features(conv(32, 40, 28)), extract_features(conv(1024, 512, 500, taps=1))
    found = predictor.predict({"near": near, "far": far})
    assert found["near"].log_sd < found["far"].log_sd


@pytest.mark.parametrize("sd", [0.1, 0.4])
def test_intervals_hold_what_they_are_meant_to_hold(sd: float) -> None:
    known, unseen = halves(mixture())
    inside = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        noisy = {key: s * math.exp(rng.normal(0, sd)) for key, s in latencies(mixture()).items()}
        found = learned(known, {key: noisy[key] for key in known}).predict(unseen)
        inside += [
            abs(math.log(noisy[k] / p.latency_s)) < 1.96 * p.log_sd for k, p in found.items()
        ]
    assert 0.87 <= np.mean(inside) <= 0.99


def test_what_bricks_of_a_group_have_in_common_is_found() -> None:
    rng = np.random.default_rng(2)
    groups = groups_of(mixture())
    common = {key: rng.normal(0, 0.3) for key in groups}
    base = latencies(mixture())
    shifted = {k: base[k] * math.exp(common[g]) for g, keys in groups.items() for k in keys}
    with_common, without = learn(mixture(), shifted, groups), learn(mixture(), base, groups)
    assert with_common is not None
    assert without is not None
    assert without.bias < 0.1
    assert 0.15 < with_common.bias < 0.6


def test_a_few_groups_that_are_right_do_not_widen_intervals() -> None:
    """Where each group's own bricks may be off by much, all could be off together, and are not."""
    few = [
        HeldOutError(f"group {i}", "Conv", 1.0, error, log_sd=1.0)
        for i, error in enumerate((0.05, -0.05) * 3)
    ]
    off = [
        HeldOutError(f"group {i}", "Conv", 1.0, error, log_sd=0.4)
        for i, error in enumerate((0.8, -0.9) * 12)
    ]
    assert bias_of(few) < 0.15 < 0.3 < bias_of(off)


def test_bricks_that_several_groups_have_are_left_out_with_none() -> None:
    every = {f"family {i}": set(mixture()) for i in range(8)}
    found = learn(mixture(), latencies(mixture()), every)
    assert found is not None
    assert found.bias > 0  # a usual one, since nothing tells it


def test_too_few_bricks_are_not_learned_from() -> None:
    few = dict([*mixture().items()][: MIN - 1])
    assert learn(few, latencies(few), groups_of(few, 3)) is None
    assert learn(mixture(), latencies(few), groups_of(few, 3)) is None


def test_it_is_known_how_many_bricks_were_learned_from() -> None:
    known, _ = halves(mixture())
    assert learned(mixture(), latencies(known)).learned_from == len(known)
