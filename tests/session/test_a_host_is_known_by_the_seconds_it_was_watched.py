"""The history of a target's host: the conditions it was watched in, and the work of its bricks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_examples import make_brick, make_decomposition, make_target, open_with_target

from bricks.decompose.plan import Brick
from bricks.graph.types import TensorType
from bricks.samples.measurement import Measurement, Round
from bricks.session.measured_target import HostHistory, work_of
from bricks.store import Store
from bricks.system.host_conditions import KERNELS, HostConditions

TARGET = make_target(threads=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_with_target(tmp_path, TARGET) as opened:
        opened.plans.save(make_decomposition(), TARGET.key)
        yield opened


def host(latency_s: float, taken_s: int | None = None) -> HostConditions:
    return HostConditions((latency_s,) * len(KERNELS), taken_s)


def measured(key: str, latency_s: float, of: HostConditions) -> Measurement:
    return Measurement(key, (Round((latency_s,), of),) * 3, 0.0)


def test_usual_conditions_are_those_it_was_watched_in_and_not_those_of_measuring(
    store: Store,
) -> None:
    store.measurements.watch(TARGET.key, [host(1e-3, second) for second in range(5)])
    usual = HostHistory.of(store, TARGET.key).usual([measured("b1-0001", 1.0, host(4e-3))])
    assert usual is not None
    assert usual.mean.kernels_s == pytest.approx((1e-3,) * len(KERNELS))
    assert usual.watched_s == 5


def test_without_any_they_are_the_mean_of_those_of_measuring(store: Store) -> None:
    history = HostHistory.of(store, TARGET.key)
    usual = history.usual([measured(key, 1.0, host(s)) for key, s in (("a", 1e-3), ("b", 4e-3))])
    assert usual is not None
    assert usual.mean.kernels_s == pytest.approx((2e-3,) * len(KERNELS))
    assert usual.watched_s == 0
    assert history.usual([Measurement("a", (Round((1.0,)),), 0.0)]) is None


def test_latencies_are_corrected_to_them(store: Store) -> None:
    store.measurements.watch(TARGET.key, [host(1e-3, second) for second in range(5)])
    slow = measured("b1-0001", 2e-3, host(2e-3))
    corrected_s = HostHistory.of(store, TARGET.key).correction([slow]).mean_s(slow)
    assert corrected_s == pytest.approx(2e-3 * 2**-0.9, rel=0.01)  # five seconds leave noise


def test_its_bricks_follow_kernels_by_their_work_and_its_threads(store: Store) -> None:
    history = HostHistory.of(store, TARGET.key)
    known = history.sensitivities(["b1-0001", "b1-0099"])
    unknown = known.of("b1-0099", 1e-3)
    assert len({*unknown.tolist()}) == 1 != len({*known.of("b1-0001", 1e-3).tolist()})
    alone = HostHistory(store, TARGET.key, 1).sensitivities(["b1-0001"])
    exchange = KERNELS.index("exchange")
    assert known.of("b1-0001", 1e-3)[exchange] > alone.of("b1-0001", 1e-3)[exchange]


def test_the_work_of_a_brick_is_that_of_its_types_and_operators() -> None:
    brick = make_brick(4)
    work = work_of(brick)
    assert (work.flops, work.calls, work.convolves) == (24.0, 2, True)
    inputs, outputs, weights = 48 + 8, 12, 24  # FLOAT[1,3,4] and INT64, FLOAT[1,3], FLOAT16[3,4]
    assert (work.value_bytes, work.weight_bytes) == (inputs + outputs, weights)
    assert not work_of(replace(brick, operators=("MatMul",))).convolves


def test_of_a_table_only_some_rows_are_read() -> None:
    floats, indices = (TensorType("FLOAT", (2, 8)), TensorType("INT64", (2,)))
    table = TensorType("FLOAT", (1000, 8))
    brick = Brick("b1-t", b"", {"x": indices}, {"w": table}, {"y": floats}, ("Gather",), 0)
    assert work_of(brick).weight_bytes == work_of(brick).value_bytes == 64 + 16
    assert work_of(replace(brick, operators=("MatMul",))).weight_bytes == 32_000
