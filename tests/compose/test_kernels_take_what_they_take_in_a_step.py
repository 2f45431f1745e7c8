"""The kernels of a step are those of its calls in order, in the state of cache and clock there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan

from bricks.compose.device.cache_state import CacheModel, CallTimes, Reuse, reuses
from bricks.compose.device.kernels import HalfWork, PowerModel, device_kernels, step_kernels
from bricks.compose.device.step_memory import RegionUse, facts_of, step_operands
from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import Phase
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Brick, Plan
from bricks.graph.form import DOMAIN
from bricks.graph.types import TensorType
from bricks.samples.measurement import Measurement, Round
from bricks.system.accelerator import Accelerator, AcceleratorState
from bricks.units.sample import Kernel, Sample

MIB = 1 << 20
CARD = Accelerator("card", 80 << 30, 50 * MIB, 132, "9.0", power_limit_w=700.0)
TABLE = TensorType("FLOAT", (MIB, 256))

shares = st.floats(0.0, 1.0)
times_s = st.floats(1e-6, 1e-3)


def walked(key: str, *kernels: Kernel) -> Measurement:
    return Measurement(key, (Round.of([Sample(1e-5, kernels)]),), 0.0)


def in_states(key: str, walk_s: float, hot_s: float, cold_s: float) -> Measurement:
    states = {None: walk_s, 0: hot_s, 256 * MIB: cold_s}
    rounds = [Round.of([Sample(1e-5, (Kernel("k", s),), d)]) for d, s in states.items()]
    return Measurement(key, tuple(rounds), 0.0)


def call(key: str, operator: str = "add", *weights: TensorType, flops: int = 0) -> Brick:
    named = {f"w{i}": type_ for i, type_ in enumerate(weights)}
    return Brick(key, b"", {"x": TABLE}, named, {"y": TABLE}, (f"{DOMAIN}aten.{operator}",), flops)


def test_each_call_has_its_kernels_in_order() -> None:
    called = plan([("a", [0], [1]), ("b", [1], [2]), ("a", [2], [3])])
    own, other = Kernel("p", 1e-6), Kernel("q", 2e-6)
    measured = {"a": walked("a", own), "b": walked("b", other, own)}
    assert device_kernels(called, measured, CARD) == ((own,), (other, own), (own,))


def test_a_call_that_starts_no_kernel_has_none() -> None:
    called = plan([("view", [0], [1])])
    assert device_kernels(called, {"view": walked("view")}, CARD) == ((),)


def test_a_call_without_a_measurement_is_not_guessed() -> None:
    with pytest.raises(KeyError):
        device_kernels(plan([("a", [0], [1])]), {}, CARD)


def test_data_that_stay_in_the_cache_make_a_call_faster_than_its_walk() -> None:
    # The walk comes to each of 100 calls with data of its own; the step has 4 MiB in all.
    keys = [f"c{i}" for i in range(100)]
    weight = TensorType("FLOAT", (MIB // 4,))
    calls = [Occurrence(key, (0,), (i + 1,), weights=(i % 4,)) for i, key in enumerate(keys)]
    measured = {key: in_states(key, 2e-6, 1e-6, 3e-6) for key in keys}
    bricks = {key: call(key, "add", weight) for key in keys}
    step = step_kernels(plan(calls), measured, CARD, bricks)
    assert 100e-6 <= step.device_s < 125e-6
    own = [Occurrence(key, (0,), (i + 1,), weights=(i,)) for i, key in enumerate(keys)]
    assert step_kernels(plan(own), measured, CARD, bricks).device_s == pytest.approx(2e-4, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 100 * MIB), st.floats(0, 1e9))), st.integers(1, 100))
def test_a_larger_cache_misses_less(uses: list[tuple[int, float]], mib: int) -> None:
    model, of = CacheModel(), [Reuse(*use, reads=True) for use in uses]
    less, more = (model.missing(of, factor * mib * MIB) for factor in (1, 2))
    assert 0.0 <= more <= less + 1e-9 <= 1.0 + 1e-6


@given(times_s, st.floats(0, 1e-3), st.floats(0, 1e-3), shares, shares, shares)
def test_a_call_takes_longer_the_more_it_misses(
    hot_s: float, walk_s: float, cold_s: float, walk: float, less: float, more: float
) -> None:
    times = CallTimes(hot_s + walk_s, hot_s, hot_s + walk_s + cold_s)
    less, more = sorted((less, more))
    model = CacheModel()
    seconds = [model.device_s(times, step, walk) for step in (less, more)]
    assert hot_s <= seconds[0] * (1 + 1e-9)
    assert seconds[0] <= seconds[1] * (1 + 1e-9)
    assert model.device_s(times, walk, walk) == pytest.approx(times.walk_s)


@given(
    st.lists(
        st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1, max_size=8
    )
)
def test_what_comes_again_after_how_many_bytes_is_counted_as_by_hand(
    regions: list[list[int]],
) -> None:
    sizes = [3, 5, 7, 11, 13, 17]
    calls = [[RegionUse(region, sizes[region]) for region in call] for call in regions]
    found = reuses(calls)
    twice = regions + regions
    for position, called in enumerate(regions, len(regions)):
        for region, reuse in zip(called, found[position - len(regions)], strict=True):
            last = max(i for i in range(position) if region in twice[i])
            between = {other for i in range(last + 1, position) for other in twice[i]}
            ends = [sum(sizes[other] for other in twice[i]) for i in (last, position)]
            expected = sum(sizes[other] for other in between) + sum(ends) / 2
            assert reuse == Reuse(sizes[region], expected, True)


def allocated(called: Plan, freed: Sequence[int | None], storages: Sequence[int]) -> Plan:
    memory = Allocated(
        "inference", (Phase("forward", len(called.occurrences), len(called.occurrences)),),
        tuple(freed), tuple(storages), (), {},
    )  # fmt: skip
    return Plan(**{**{name: getattr(called, name) for name in called.__slots__}, "memory": memory})


def test_a_result_lies_where_one_of_its_size_was_freed() -> None:
    called = plan([("a", [0], [1]), ("a", [1], [2]), ("a", [2], [3]), ("a", [3], [4])])
    chain = allocated(called, [None, 1, 2, 3, None], [-1, 1, 2, 3, 4])
    facts = [facts_of(call("a"), True)] * 4
    written = [operands[-1].region for operands in step_operands(chain, facts)]
    assert written[2] == written[0] and written[3] == written[1] != written[0]


def test_indices_select_a_part_of_a_table() -> None:
    looked_up = Occurrence("e", (0,), (1,), weights=(0,))
    (operands,) = step_operands(plan([looked_up]), [facts_of(call("e", "embedding", TABLE), True)])
    assert {operand.size_bytes for operand in operands} == {64}
    (operands,) = step_operands(plan([looked_up]), [facts_of(call("e", "addmm", TABLE), True)])
    assert max(operand.size_bytes for operand in operands) == TABLE.size_bytes


def test_a_card_at_its_power_limit_lowers_its_clock() -> None:
    model, second = PowerModel(), [HalfWork(600 * 10**12, 1.0)]
    shares = [model.clock_share(second, step_s, CARD) for step_s in (1.0, 1.2, 4.0)]
    assert shares[0] < shares[1] < shares[2] == 1.0
    assert model.slowdown(shares[0]) > model.slowdown(shares[1]) > model.slowdown(1.0) == 1.0
    other = Accelerator("other", 80 << 30, 50 * MIB, 132, "8.0", power_limit_w=400.0)
    assert model.clock_share(second, 1.0, other) == 1.0


def test_a_walk_that_was_timed_at_the_power_limit_is_not_slowed_again() -> None:
    called, bricks = plan([("a", [0], [1])]), {"a": call("a", flops=6 * 10**11)}
    half = TensorType("BFLOAT16", (MIB, 256))
    bricks["a"] = replace(bricks["a"], inputs={"x": half})
    (taken,) = walked("a", Kernel("product", 1e-3)).rounds
    at_limit = replace(taken, device_state=AcceleratorState(1.4e9, 700.0, ("power",)))
    seconds = [
        step_kernels(called, {"a": Measurement("a", (of,), 0.0)}, CARD, bricks).device_s
        for of in (taken, at_limit)
    ]
    assert seconds[0] > seconds[1] == 1e-3


def test_a_call_that_was_not_walked_lies_between_hot_and_cold() -> None:
    states = {0: 1e-6, 256 * MIB: 3e-6}
    rounds = [Round.of([Sample(1e-5, (Kernel("k", s),), d)]) for d, s in states.items()]
    called, bricks = plan([("a", [0], [1])]), {"a": call("a", "relu")}
    step = step_kernels(called, {"a": Measurement("a", tuple(rounds), 0.0)}, CARD, bricks)
    assert 1e-6 < step.device_s < 3e-6


def test_without_all_bricks_calls_take_what_they_take_in_a_walk() -> None:
    called, measured = plan([("a", [0], [1])]), {"a": in_states("a", 2e-6, 1e-6, 3e-6)}
    unknown, known = (step_kernels(called, measured, CARD, of) for of in ({}, {"a": call("a")}))
    assert unknown.device_s == pytest.approx(2e-6)
    assert unknown.error > known.error > 0
