"""The host's time of calls that nobody measured, from measured calls of their operators."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from device_calls import product_brick, sum_brick, view_brick
from plans import measurement

from bricks.decompose.build import single_call
from bricks.decompose.plan import Brick
from bricks.graph.program import Call
from bricks.graph.types import TensorType
from bricks.predict.kernels.learned_kernels import HostTimes

Called = list[tuple[Brick, float]]
PRODUCTS = [(product_brick(m, 64, 64), 1e-6 * s) for m, s in ((8, 29), (16, 30), (32, 33))]
VIEWS = [(view_brick(n), 1e-6 * s) for n, s in ((8, 3), (16, 4), (32, 5))]
NUMBER = TensorType("FLOAT", ())


def learned(calls: Called) -> HostTimes:
    measured = {brick.key: measurement(brick.key, seconds) for brick, seconds in calls}
    return HostTimes.learn({brick.key: brick for brick, _ in calls}, measured)


def lists_brick(tensors: int) -> Brick:
    lists = [[{"t": number} for number in range(tensors)], 0.5]
    call = Call("aten", "_foreach_mul_.Scalar", (lists, {}), aliases=(-1, *range(tensors)))
    vectors: Sequence[TensorType] = [TensorType("FLOAT", (64,))] * tensors
    return single_call(call, vectors, vectors)


def read_brick(*, on_host: bool) -> Brick:
    call = Call("aten", "_local_scalar_dense", ([{"t": 0}], {}), on_host=on_host)
    return single_call(call, [NUMBER], [])


def test_a_call_takes_what_calls_of_its_operator_took() -> None:
    host = learned(PRODUCTS + VIEWS)
    assert host.of(product_brick(128, 64, 64)).value == pytest.approx(30e-6)
    assert host.of(view_brick(128)).value == pytest.approx(4e-6)
    assert host.of(product_brick(128, 64, 64)).holds(31e-6)
    assert not host.of(product_brick(128, 64, 64)).holds(60e-6)


def test_an_operator_that_nobody_measured_takes_the_median_of_all_less_surely() -> None:
    host = learned(PRODUCTS + VIEWS)
    unmeasured, known = host.of(sum_brick(64)), host.of(product_brick(128, 64, 64))
    assert 4e-6 < unmeasured.value < 30e-6
    assert unmeasured.relative > known.relative
    assert all(unmeasured.holds(seconds) for _, seconds in (VIEWS[1], PRODUCTS[1]))


def test_longer_lists_take_longer() -> None:
    host = learned([(lists_brick(40), 30e-6), *VIEWS])
    assert host.of(lists_brick(40)).value == pytest.approx(30e-6)
    assert host.of(lists_brick(10)).value < 20e-6
    assert host.of(lists_brick(400)).value > 150e-6


def test_reading_a_number_of_the_host_waits_for_no_copy() -> None:
    host = learned([(read_brick(on_host=True), 2e-6), (read_brick(on_host=False), 20e-6)])
    assert host.of(read_brick(on_host=True)).value == pytest.approx(2e-6)
    assert host.of(read_brick(on_host=False)).value == pytest.approx(20e-6)
