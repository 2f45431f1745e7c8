"""The work of a call counts what its kernels do beyond its shapes: tiles, copies, passes."""

from __future__ import annotations

import pytest
from device_calls import call_brick

from bricks.decompose.plan import Brick
from bricks.predict.kernels.device_roofline import products_s
from bricks.predict.kernels.features import kernel_features
from bricks.predict.kernels.work import CallWork, MatrixProduct
from bricks.system.cards import card_named

H200 = card_named("h200")
SMS = H200.accelerator.multiprocessors

CHANNELS_LAST = "last"


def product_s(product: MatrixProduct, precision: str = "bf16") -> float:
    return float(products_s([CallWork((product,), precision, 0.0, 0.0, (), ())], H200)[0])


def work_of(brick: Brick) -> CallWork:
    (features,) = kernel_features(brick)
    return features.work


def convolution(
    terms: int, outputs: int, layout: str = "", *, size: int = 28, taps: int = 3, groups: int = 1
) -> Brick:
    """A convolution of four images in float32."""
    data, weight = (4, terms, size, size), (outputs, terms // groups, taps, taps)
    padding = [taps // 2] * 2
    rest = [None, [1, 1], padding, [1, 1], False, [0, 0], groups]
    arguments = [{"t": 0}, {"t": 1}, *rest]
    strides = [_last(data), _last(weight)] if layout == CHANNELS_LAST else None
    shapes = [(shape, "FLOAT") for shape in (data, weight)]
    return call_brick(
        "convolution", arguments, shapes, [((4, outputs, size, size), "FLOAT")], strides
    )


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, channels, height, width = shape
    return channels * height * width, 1, width * channels, channels


def embedding_gradients(rows: int) -> Brick:
    shapes = [((rows, 64), "FLOAT"), ((rows,), "INT64")]
    arguments = [{"t": 0}, {"t": 1}, 1000, -1, False]
    return call_brick("embedding_dense_backward", arguments, shapes, [((1000, 64), "FLOAT")])


def test_large_products_take_what_the_peak_says() -> None:
    product = MatrixProduct(1, 8192, 8192, 8192)
    assert product_s(product) == pytest.approx(product.flops / H200.flops_per_s["bf16"], rel=0.1)


def test_the_last_wave_of_tiles_is_paid_for_in_full() -> None:
    whole, one_more, few = (MatrixProduct(n, 256, 128, 1024) for n in (SMS, SMS + 1, SMS - 8))
    assert product_s(few) == product_s(whole)
    assert product_s(one_more) > 1.2 * product_s(whole)


def test_a_tile_that_is_partly_used_is_paid_for_in_full() -> None:
    assert product_s(MatrixProduct(SMS, 250, 128, 1024)) == product_s(
        MatrixProduct(SMS, 256, 128, 1024)
    )


def test_terms_of_few_tiles_are_shared() -> None:
    alone, shared = MatrixProduct(SMS, 64, 64, 1 << 16), MatrixProduct(1, 64, 64, 1 << 16)
    assert product_s(shared) < product_s(alone) / 4


def test_products_without_tiles_take_their_operations() -> None:
    product = MatrixProduct(7, 1, 64, 100, tiled=False)
    assert product_s(product, "fp32") == pytest.approx(product.flops / H200.flops_per_s["fp32"])


def test_groups_of_a_convolution_run_one_after_another() -> None:
    one, four = work_of(convolution(64, 64)), work_of(convolution(64, 64, groups=4))
    assert four.flops == pytest.approx(one.flops / 4)
    assert sum(product.times for product in four.products) == 4
    assert four.kernels == one.kernels + 3


def test_images_are_copied_to_the_layout_of_the_kernels() -> None:
    first, last = (work_of(convolution(64, 64, layout)) for layout in ("", CHANNELS_LAST))
    assert (first.kernels, last.kernels) == (4, 1)
    assert first.read_bytes == pytest.approx(2 * last.read_bytes + last.written_bytes)


def test_channels_that_are_no_multiple_are_padded_by_a_copy() -> None:
    even, odd = (work_of(convolution(n, 64, CHANNELS_LAST)) for n in (64, 61))
    assert (even.kernels, odd.kernels) == (1, 3)
    assert odd.read_bytes > even.read_bytes


@pytest.mark.parametrize(
    "brick",
    [convolution(64, 32, taps=1), convolution(64, 64, groups=64)],
    ids=["of one pixel", "depthwise"],
)
def test_images_that_kernels_take_as_they_are_are_not_copied(brick: Brick) -> None:
    work = work_of(brick)
    assert work.kernels == sum(product.times for product in work.products)


def test_a_window_of_one_pixel_needs_whole_rows_of_pixels() -> None:
    assert work_of(convolution(64, 32, taps=1, size=7)).kernels == 4


def test_gradients_of_many_rows_sort_their_indices_first() -> None:
    few, many = (work_of(embedding_gradients(rows)) for rows in (1024, 4096))
    assert few.kernels == 1 and many.kernels > 16
    assert many.written_bytes - few.written_bytes == 8 * 4096 * 16
