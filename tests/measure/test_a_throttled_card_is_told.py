"""Rounds keep the state of the card, and answers say when its clock was lowered meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Here
from factories import mlp, save
from tiers import slow_but

from bricks import Bench, Conditions, Measurement, StopRule
from bricks.backends import heating
from bricks.backends.heating import Heating
from bricks.report.tables import disturbance
from bricks.samples.measurement import Round, Sampling
from bricks.suite.runner.suite_run import RunSummary
from bricks.system.accelerator import AcceleratorState, joined

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)
FULL, HALF = AcceleratorState(2e9, 300.0), AcceleratorState(1e9, 700.0, ("power",))
HOT = AcceleratorState(0.5e9, 200.0, ("temperature",))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is heated for longer than a pass."""
    monkeypatch.setattr(heating, "HEATED_S", 0.0)


def bench_of(folder: Path) -> Bench:
    return Bench(folder / "cache", runtime="fake", device="cuda", threads=1, conditions=ONCE)


def measured(bench: Bench, path: Path) -> list[Measurement]:
    model = bench.read(path)
    bench.measure([model])
    keys = bench.decompose(model).plan.keys
    found = bench.store.measurements.results(bench.target.key, keys).values()
    return [of for of in found if isinstance(of, Measurement)]


def test_rounds_keep_the_state_and_take_it_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_THROTTLE", "power")
    path, results = save(mlp(), tmp_path, "mlp.onnx"), tmp_path / "results.jsonl"
    with bench_of(tmp_path) as bench:
        known = measured(bench, path)
        states = {r.device_state for of in known for r in of.rounds}
        assert states == {AcceleratorState(0.5e9, 300.0, ("power",))}
        assert not any(r.disturbed for of in known for r in of.rounds)
        assert bench.store.contents.verify() == []
        bench.store.contents.export(results, [bench.target.key], package="0")
    with bench_of(tmp_path / "other") as other:
        other.workspace.merge(results)
        assert measured(other, path) == known


@pytest.mark.parametrize(
    ("reason", "then"),
    slow_but(
        lambda of: of[0] == "temperature",
        [("power", "a long run is as slow"), ("temperature", "let it cool, and add --again")],
    ),
)
def test_answers_say_it_in_one_remark(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, then: str
) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    monkeypatch.setenv("BRICKS_FAKE_THROTTLE", reason)
    here("measure", path, "--device", "cuda")
    done = here("predict", path, "--device", "cuda")
    said = " ".join(done.out.split())
    assert said.count("throttled") == 1
    assert (
        f"100 % of its kernels' time was measured while the card was throttled by {reason}" in said
    )
    assert "its clock down to 0.50 GHz" in said and then in said
    (row,) = here("predict", path, "--device", "cuda", "--json").json["models"]
    assert (row["throttled_share"], row["throttled_by"]) == (1.0, [reason])


def test_a_card_that_is_not_throttled_is_not_spoken_of(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    here("measure", path, "--device", "cuda")
    assert "throttled" not in here("predict", path, "--device", "cuda").out
    (row,) = here("predict", path, "--device", "cuda", "--json").json["models"]
    assert (row["throttled_share"], row["throttled_by"]) == (0.0, [])


def test_a_card_that_ran_nothing_yet_is_measured_first(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    (row,) = here("predict", path, "--device", "cuda", "--json").json["models"]
    assert (row["error"], row["measured_share"]) == (None, 1.0)


def test_measuring_counts_samples_of_a_throttled_card() -> None:
    (said,) = disturbance(Sampling(rounds=40, throttled_rounds=12))
    assert said.startswith("12 of 40 samples were taken while the card was throttled")


def test_rounds_of_a_hot_card_are_left_out_where_there_are_enough_others() -> None:
    rounds = [Round((1.0,), device_state=state) for state in (FULL, HOT, HALF)]
    assert [r.disturbed for r in rounds] == [False, True, False]
    both = Measurement("b1-0", tuple(rounds), 1.0)
    assert both.throttled == HALF
    assert Measurement("b1-0", tuple(rounds[1:2]), 1.0).throttled == HOT
    assert Measurement("b1-0", tuple(rounds[:1]), 1.0).throttled is None


def test_states_are_joined_to_the_worst() -> None:
    assert joined([FULL, None, HOT, HALF]) == AcceleratorState(
        0.5e9, 700.0, ("power", "temperature")
    )
    assert joined([None]) is None


def reader(*states: AcceleratorState | None) -> Callable[[], AcceleratorState | None]:
    left: Iterator[AcceleratorState | None] = iter(states)
    return lambda: next(left)


def falling(*clocks_hz: float) -> list[AcceleratorState]:
    return [AcceleratorState(hz, 700.0, ("power",)) for hz in clocks_hz]


def test_a_card_at_its_limit_is_heated_until_its_clock_is_steady() -> None:
    passes: list[None] = []
    one, walk = lambda: passes.append(None), Heating()
    walk.heat(one, reader(FULL, *falling(1.8e9, 1.6e9, 1.599e9)))
    assert len(passes) == 3
    walk.heat(one, reader(*falling(1.6e9, 1.6e9)))
    assert len(passes) == 4


@pytest.mark.parametrize("state", [FULL, HOT])
def test_a_walk_that_leaves_the_card_below_its_limit_is_heated_once(
    state: AcceleratorState,
) -> None:
    passes: list[None] = []
    one, walk = lambda: passes.append(None), Heating()
    walk.heat(one, reader(FULL, state))
    walk.heat(one, reader())
    assert len(passes) == 1
    Heating().heat(one, reader(None))
    assert len(passes) == 1


def test_a_portable_suite_says_clocks_and_throttling() -> None:
    assert [*RunSummary().lines([])] == []
    assert [*RunSummary(states=[FULL, FULL]).lines([])] == [
        "GPU: clock 2.00 GHz to 2.00 GHz, never throttled"
    ]
    assert [*RunSummary(states=[FULL, HALF, HOT]).lines([])] == [
        "GPU: clock 0.50 GHz to 2.00 GHz, throttled by power and temperature in 2 of 3 rounds"
    ]
