"""The change of a latency between machine states follows from kernel and sizes, and from others."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bricks.samples.measurement import Measurement, Round
from bricks.samples.state_correction import Factor, StateCorrection
from bricks.samples.state_model import SizeFacts, StateModel

FAST, SLOW = 6e-5, 1.3e-4

LATENCIES = st.floats(1e-6, 1.0)
STATES = st.floats(2e-5, 5e-4)
FACTS = st.none() | st.builds(
    SizeFacts, st.sampled_from(["convolution dense", "product", "Add"]), st.floats(0, 1e8)
)


def taken(key: str, latency_s: float, *states_s: float) -> Measurement:
    """A measurement with a round of one latency in each of these states."""
    return Measurement(key, tuple(Round((latency_s,), s, 0.0, s) for s in states_s), 1.0)


def in_both(key: str, fast_s: float, slow_s: float) -> Measurement:
    """A measurement with rounds in both states."""
    rounds = [Round((s,), state, 0.0, state) for s, state in ((fast_s, FAST), (slow_s, SLOW))]
    return Measurement(key, (*rounds, *rounds, *rounds), 1.0)


def following() -> StateModel:
    """Learned from bricks that exchange much and follow the reference, and some that do not."""
    facts = {f"add{i}": SizeFacts("Add", 4e5 + i) for i in range(20)}
    facts |= {f"dense{i}": SizeFacts("convolution dense", 4e5 + i) for i in range(20)}
    known = [in_both(f"add{i}", 1e-5 * 1.05**i, 2e-5 * 1.05**i) for i in range(20)]
    known += [in_both(f"dense{i}", 1e-3 * 1.05**i, 1e-3 * 1.05**i) for i in range(20)]
    return StateModel(known, facts)


MODELS = {"nothing known": StateModel(), "learned": following()}


def corrected(
    model: StateModel, facts: SizeFacts | None, latency_s: float, own_s: float, state_s: float
) -> Factor:
    """The correction of a brick with one latency from its own state to another."""
    knows = model.with_facts({} if facts is None else {"brick": facts})
    return StateCorrection((), state_s, knows).factor(taken("brick", latency_s, own_s, own_s))


@pytest.mark.parametrize("name", MODELS)
@given(FACTS, LATENCIES, STATES)
def test_in_one_state_nothing_is_corrected(
    name: str, facts: SizeFacts | None, latency_s: float, state_s: float
) -> None:
    found = corrected(MODELS[name], facts, latency_s, state_s, state_s)
    assert (found.middle, found.low, found.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("name", MODELS)
@given(FACTS, LATENCIES, STATES, STATES)
@settings(deadline=None)
def test_there_and_back_nothing_has_changed(
    name: str, facts: SizeFacts | None, latency_s: float, one_s: float, other_s: float
) -> None:
    there = corrected(MODELS[name], facts, latency_s, one_s, other_s)
    back = corrected(MODELS[name], facts, latency_s * there.middle, other_s, one_s)
    assert there.middle * back.middle == pytest.approx(1.0, rel=1e-4)
    assert back.log_sd == pytest.approx(there.log_sd, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
@given(FACTS, LATENCIES, STATES, STATES, STATES)
@settings(deadline=None)
def test_a_slower_state_is_never_faster_and_less_sure_the_further_it_is(
    name: str, facts: SizeFacts | None, latency_s: float, own_s: float, one_s: float, other_s: float
) -> None:
    near_s, far_s = sorted((one_s, other_s))
    near, far = (corrected(MODELS[name], facts, latency_s, own_s, s) for s in (near_s, far_s))
    assert near.middle <= far.middle * (1 + 1e-12)
    assert far.middle / near.middle <= (far_s / near_s) ** 1.5 * (1 + 1e-9)
    if near_s >= own_s:
        assert near.log_sd <= far.log_sd * (1 + 1e-12)


def test_short_bricks_that_exchange_much_change_most() -> None:
    def change(kernel: str, exchanged_bytes: float, latency_s: float) -> float:
        facts = SizeFacts(kernel, exchanged_bytes)
        return corrected(StateModel(), facts, latency_s, FAST, SLOW).middle

    assert change("Add", 1e6, 1e-5) > 1.3  # moves a megabyte and computes nothing
    assert change("Add", 1e6, 1e-5) > change("Add", 1e3, 1e-5)
    assert change("convolution dense", 1e6, 1e-4) > change("convolution dense", 1e6, 1e-3)
    assert change("convolution dense", 1e6, 5e-3) == pytest.approx(1.0, abs=0.05)


def test_what_is_learned_holds_for_like_bricks() -> None:
    model = following()
    adds, dense = SizeFacts("Add", 5e5), SizeFacts("convolution dense", 5e5)
    assert corrected(model, adds, 1.5e-5, FAST, SLOW).middle == pytest.approx(2.0, rel=0.1)
    assert corrected(model, dense, 1.5e-3, FAST, SLOW).middle == pytest.approx(1.0, abs=0.03)
    # Other kernels follow a part of the way, and are less certain.
    other = corrected(model, SizeFacts("Mul", 5e5), 1.5e-5, FAST, SLOW)
    unknown = corrected(StateModel(), SizeFacts("Mul", 5e5), 1.5e-5, FAST, SLOW)
    known = corrected(model, adds, 1.5e-5, FAST, SLOW)
    assert unknown.middle < other.middle < known.middle
    assert known.shared_sd < other.shared_sd < unknown.shared_sd


def test_without_sizes_latency_alone_decides() -> None:
    short = [in_both(f"s{i}", 1e-5 * 1.05**i, 1.8e-5 * 1.05**i) for i in range(20)]
    long = [in_both(f"l{i}", 1e-2 * 1.05**i, 1e-2 * 1.05**i) for i in range(20)]
    found = StateModel([*short, *long])
    assert corrected(found, None, 1.5e-5, FAST, SLOW).middle == pytest.approx(1.8, rel=0.1)
    assert corrected(found, None, 1.5e-2, FAST, SLOW).middle == pytest.approx(1.0, abs=0.02)


def test_an_outlier_does_not_decide() -> None:
    facts = {f"add{i}": SizeFacts("Add", 4e5 + i) for i in range(21)}
    known = [in_both(f"add{i}", 1e-5 * 1.05**i, 1.5e-5 * 1.05**i) for i in range(20)]
    without = StateModel(known, facts)
    noisy = StateModel([*known, in_both("add20", 1e-5, 5e-6)], facts)
    brick = SizeFacts("Add", 4e5)
    assert corrected(noisy, brick, 1.5e-5, FAST, SLOW).middle == pytest.approx(
        corrected(without, brick, 1.5e-5, FAST, SLOW).middle, rel=0.03
    )


def test_intervals_hold_the_truth() -> None:
    draw = random.Random(3)
    kernels = {f"kernel{i}": draw.uniform(0.5, 1.5) for i in range(8)}

    def brick(key: str) -> tuple[Measurement, SizeFacts]:
        """Computing, waiting and exchanging, of which the last two follow the reference."""
        kernel, moved = draw.choice(list(kernels)), 10 ** draw.uniform(4, 6.3)
        computing_s = 10 ** draw.uniform(-5.5, -2)
        exchanging = 0.15e-6 * min(moved, 1.5e6) * kernels[kernel] + 0.02
        fast_s, slow_s = (computing_s + exchanging * state_s for state_s in (FAST, SLOW))
        share = 1 - computing_s / slow_s
        return (
            in_both(key, fast_s, slow_s * math.exp(draw.gauss(0, 0.01 + 0.2 * share))),
            SizeFacts(kernel, moved),
        )

    known = {key: brick(key) for key in map(str, range(40))}
    asked = {key: brick(key) for key in map(str, range(100, 500))}
    facts = {key: facts for key, (_, facts) in (known | asked).items()}
    model = StateModel([m for m, _ in known.values()], facts)
    held, errors = 0, []
    for key, (both, _) in asked.items():
        fast_s, slow_s = both.latency_s(FAST), both.latency_s(SLOW)
        knows = StateCorrection((), SLOW, model)
        factor = knows.factor(taken(key, fast_s, FAST, FAST))
        held += factor.low <= slow_s / fast_s <= factor.high
        errors.append(abs(math.log(slow_s / fast_s / factor.middle)))
    assert held >= 0.92 * len(asked)
    assert sorted(errors)[len(errors) // 2] < 0.06


def test_errors_in_common_add_up_as_far_as_bricks_are_alike() -> None:
    facts = {"a": SizeFacts("Add", 5e5), "b": SizeFacts("Add", 5e5), "c": SizeFacts("Mul", 5e5)}
    correction = StateCorrection((), SLOW, StateModel((), facts))
    a, b, c = (taken(key, 1e-5, FAST, FAST) for key in facts)
    one_s = correction.shared_s([(a, 1e-5)])
    assert one_s == pytest.approx(1e-5 * correction.factor(a).shared_sd)
    assert correction.shared_s([(a, 1e-5), (b, 1e-5)]) == pytest.approx(2 * one_s)
    assert one_s < correction.shared_s([(a, 1e-5), (c, 1e-5)]) < 2 * one_s
    assert correction.shared_s([]) == 0.0
    assert StateCorrection((), None).shared_s([(a, 1e-5)]) == 0.0
