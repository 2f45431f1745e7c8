"""A machine may change while it is measured on; what is compared must come from one state."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here, rounds
from factories import mlp, save
from plans import plan, results

from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.samples.machine_state import dominant_state, same_state, states
from bricks.samples.measurement import Measurement, Round, common_state
from bricks.samples.state_correction import StateCorrection

NEAR, FAR = 1e-4, 2e-4


def taken(key: str, *rounds: tuple[float, float], wall_s: float = 1.0) -> Measurement:
    """A measurement with rounds of (latency, state)."""
    return Measurement(key, tuple(Round((s,), r, None, r) for s, r in rounds), wall_s)


def test_states_are_told_apart_by_the_reference() -> None:
    assert same_state(1.0, 1.2) and same_state(1.2, 1.0) and not same_state(1.0, 1.3)
    assert same_state(None, 1.0) and same_state(1.0, None)
    assert dominant_state([None, 1.0, 2.0, 2.1, 1.9]) == 2.0
    assert dominant_state([None]) is None
    assert dominant_state([]) is None
    assert states([1.0, 2.0, 2.1, 1.9, 1.05, None]) == [2.0, 1.05]
    assert states([None, None]) == [None]


def test_a_round_in_which_the_machine_changes_is_disturbed() -> None:
    assert not Round((1.0,), NEAR, 0.0, NEAR).disturbed
    assert Round((1.0,), NEAR, 0.0, FAR).disturbed
    assert not Round((1.0,), NEAR, 0.0).disturbed
    assert Round((1.0,), NEAR, 0.0, 1.2 * NEAR).state_s == pytest.approx(1.1 * NEAR)


def test_conclusions_are_drawn_from_one_state() -> None:
    both = taken("a", *[(1.0, NEAR)] * 5, *[(3.0, FAR)] * 6)
    assert both.latency_s() == both.latency_s(FAR) == 3.0
    assert both.latency_s(NEAR) == 1.0
    few = taken("a", (1.0, NEAR), *[(3.0, FAR)] * 6)
    assert not few.known_in(NEAR)
    assert few.latency_s(NEAR) == 3.0  # one is too few


def test_the_common_state_is_the_one_most_is_known_in() -> None:
    whole = taken("m", *[(9.0, NEAR)] * 8, *[(18.0, FAR)] * 4)
    near = taken("a", *[(1.0, NEAR)] * 8)
    both = taken("b", *[(1.0, NEAR)] * 4, *[(2.0, FAR)] * 8)
    far = taken("c", *[(2.0, FAR)] * 8)
    assert common_state([whole], {"a": near, "b": both}, {}) == NEAR
    assert common_state([whole], {"b": both, "c": far}, {}) == FAR
    assert common_state([whole], {"a": near, "c": far}, {"a": 3}) == NEAR
    assert common_state([whole], {"b": both}, {}) == NEAR  # in both: where more rounds are


CHAIN = plan([("a", [0], [1]), ("b", [1], [2])])


def test_an_estimate_speaks_of_one_state_and_says_what_is_of_another() -> None:
    known = results({}) | {
        "a": taken("a", *[(1e-3, NEAR)] * 8, *[(2e-3, FAR)] * 8),
        "b": taken("b", *[(3e-3, NEAR)] * 8),
    }
    assert state_of(CHAIN, known) == NEAR
    near, far = recompose(Basis(CHAIN, known)), recompose(Basis(CHAIN, known, FAR))
    assert isinstance(near, Estimate) and isinstance(far, Estimate)
    assert near.estimate_s == pytest.approx(4e-3)
    assert near.other_state_share == 0.0
    assert 2e-3 + 3e-3 < far.estimate_s < 2e-3 + 6e-3  # slower too, by less than the reference
    assert far.other_state_share == pytest.approx(1 - 2e-3 / far.estimate_s)
    assert far.high_s > 2e-3 + 3.5e-3  # a sixth slower, perhaps
    assert near.high_s < 4.2e-3


def test_latencies_are_translated_as_those_were_that_are_known_in_both_states() -> None:
    many = [
        taken(str(i), *[(s, NEAR)] * 3, *[(factor * s, FAR)] * 3)
        for i in range(40)
        for s, factor in ((2e-5 * 1.02**i, 1.6), (1e-2 * 1.02**i, 1.0))
    ]
    short, long = taken("a", *[(3e-5, NEAR)] * 3), taken("b", *[(2e-2, NEAR)] * 3)
    found = StateCorrection([*many, short, long], FAR)
    assert found.mean_s(short) == pytest.approx(1.6 * 3e-5, rel=0.02)
    assert found.mean_s(long) == pytest.approx(2e-2, rel=0.02)
    assert found.factor(short).low < 1.6 < found.factor(short).high
    assert found.factor(long).relative_uncertainty < 0.2
    # If nothing is known, physics still says that long bricks change less, and less surely so.
    unknown = StateCorrection([], FAR)
    assert unknown.factor(short).middle > unknown.factor(long).middle
    assert 0.05 < unknown.factor(long).relative_uncertainty < 0.25
    assert unknown.factor(short).relative_uncertainty > 0.5


def test_drift_within_a_state_is_translated_as_far_as_latencies_follow_it() -> None:
    slow = 1.2 * NEAR
    following = [taken(str(i), (2e-5, NEAR), (2.4e-5, slow)) for i in range(200)]
    steady = [taken(f"s{i}", (2e-2, NEAR), (2e-2, slow)) for i in range(200)]
    short, long = taken("a", *[(2.4e-5, slow)] * 2), taken("b", *[(2e-2, slow)] * 2)
    found = StateCorrection([*following, *steady], NEAR)
    assert short.known_in(NEAR)
    assert found.mean_s(short) == pytest.approx(2e-5, rel=0.03)
    assert found.rounds_s(short) == [found.mean_s(short)] * 2
    assert found.mean_s(long) == pytest.approx(2e-2, rel=0.03)
    assert found.factor(short).errors.middle == 1.0
    assert 0.0 < found.factor(short).errors.relative_uncertainty < 0.25


def test_a_sample_that_was_held_up_does_not_count() -> None:
    assert Round((1.0, 1.2)).latency_s == pytest.approx(1.1)
    assert Round((1.0, 1.3)).latency_s == Round((1.3, 1.0)).latency_s == 1.0
    assert Round((3.0, 1.0, 1.1)).latency_s == pytest.approx(1.05)
    assert Round((2.0,)).latency_s == 2.0


def test_what_is_known_in_the_state_or_in_none_is_not_translated() -> None:
    near, nowhere = taken("a", *[(1.0, NEAR)] * 3), Measurement("b", (Round((1.0,)),), 1.0)
    for state_s in (NEAR, None):
        assert StateCorrection([near], state_s).mean_s(near) == 1.0
        assert StateCorrection([near], state_s).factor(near).relative_uncertainty == 0.0
    assert StateCorrection([near], FAR).factor(near).relative_uncertainty > 0.0
    assert StateCorrection([near], FAR).mean_s(nowhere) == 1.0


def test_what_was_measured_in_another_state_is_measured_again(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = save(mlp(widths=(8, 8, 4)), tmp_path, "small.onnx")
    larger = save(mlp(widths=(16, 8, 8, 4), prefix="other_", seed=7), tmp_path, "larger.onnx")
    first = here("measure", small, "--json").json
    assert first["remeasured_bricks"] == 0
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    done = here("compare", larger)
    assert "were measured again" in done.out
    (row,) = here("compare", larger, "--json").json["models"]
    assert row["ratio"] == pytest.approx(1, abs=0.01)
    kept = rounds(here.cache, "")
    again = here("measure", small, larger, "--json").json  # known in one state each: nothing to do
    assert (again["new_bricks"], again["remeasured_bricks"]) == (0, 0)
    assert rounds(here.cache, "") == kept


def test_a_machine_that_changed_a_little_is_the_same(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("measure", save(mlp(widths=(8, 8, 4)), tmp_path, "small.onnx"))
    monkeypatch.setenv("BRICKS_FAKE_STATE", "1.1")
    larger = save(mlp(widths=(16, 8, 8, 4), prefix="other_", seed=7), tmp_path, "larger.onnx")
    assert here("measure", larger, "--json").json["remeasured_bricks"] == 0
