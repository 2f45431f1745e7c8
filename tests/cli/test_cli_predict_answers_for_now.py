"""``bricks predict --now``: how long a model takes at the present speed of this host."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here, chain
from factories import mlp, save

from bricks import Bench
from bricks.compose.estimate import Estimate
from bricks.samples.call_overhead import needed_by
from bricks.samples.measurement import Measurement, Round
from bricks.samples.usual_conditions import UsualConditions
from bricks.session import measuring, predicting
from bricks.store import Owner, Store
from bricks.system.host_conditions import KERNELS, HostConditions


@pytest.fixture(autouse=True)
def _no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are timed once, which the fake runtime varies by little."""
    monkeypatch.setattr(predicting, "WATCHED_S", 0.0)


@pytest.fixture
def model(here: Here, tmp_path: Path) -> Path:
    """A model whose bricks are measured."""
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("measure", path).status == 0
    return path


def test_on_a_host_that_is_slow_now_a_model_takes_longer_than_usual(
    here: Here, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (usual,) = here("predict", model, "--json").json["models"]
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    done = here("predict", model, "--now", "--json")
    (now,) = done.json["models"]
    # Of a deviation from the usual conditions, 0.7 lasts; a brick follows 0.9 of it.
    assert now["estimate_s"] / now["usual_s"] == pytest.approx(2**0.9, rel=0.05)
    assert now["usual_s"] == pytest.approx(usual["estimate_s"], rel=0.05)
    assert now["usual_low_s"] <= now["usual_s"] <= now["usual_high_s"]
    assert " now, " in done.json["answer"] and " at other times" in done.json["answer"]
    assert now["watched_s"] > 0


def rounds(here: Here, model: Path) -> list[int]:
    """The number of rounds of each brick of ``model``."""
    with Bench(here.cache, runtime="fake") as bench:
        keys = bench.decompose(bench.read(model)).plan.keys
        results = bench.store.measurements.results(bench.target.key, keys)
        return [len(m.rounds) for m in results.values() if isinstance(m, Measurement)]


def test_bricks_of_another_time_get_a_few_rounds_more(
    here: Here, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rounds(here, model)
    assert here("predict", model, "--now").status == 0
    assert rounds(here, model) == before, "they were measured within the last minutes"
    monkeypatch.setattr(measuring, "SAME_PERIOD_S", 0)
    assert here("predict", model, "--no-measure", "--now").status == 0
    assert rounds(here, model) == before
    assert here("predict", model, "--now").status == 0
    assert all(after > old for after, old in zip(rounds(here, model), before, strict=True))


def test_bricks_with_rounds_of_now_count_with_these(here: Here, tmp_path: Path) -> None:
    """Reference kernels show no change, and the bricks are twice as slow as an hour ago."""
    path, kernels_s = save(mlp(), tmp_path, "mlp.onnx"), (1e-3,) * len(KERNELS)

    def at(second: int, latency_s: float) -> Round:
        return Round((latency_s,) * 2, HostConditions(kernels_s, second))

    with Bench(here.cache, runtime="fake") as bench:
        model = bench.read(path)
        keys = needed_by(bench.decompose(model).plan)
        every = [at(n, 1e-3) for n in range(20)] + [at(3600 + n, 2e-3) for n in range(3)]
        target, owner, store = bench.target.key, Owner.current(), bench.store
        store.claims.claim(target, keys, owner)
        for one in every:
            store.claims.append_rounds(target, {key: (one, 0.1) for key in keys}, owner)
        store.claims.finish(target, keys, owner)

        def latency_s(second: int) -> float:
            conditions = UsualConditions.exactly(HostConditions(kernels_s, second))
            found = predicting.predict(bench.workspace, model, conditions=conditions)
            assert isinstance(found, Estimate)
            return found.estimate_s

        assert latency_s(3700) == pytest.approx(2 * latency_s(90_000), rel=0.01)


def test_nothing_of_it_is_said_without_the_option(here: Here, model: Path) -> None:
    done = here("predict", model, "--json")
    assert done.json["models"][0]["usual_s"] is None
    assert "at other times" not in done.json["answer"]


def test_the_host_has_then_been_watched_for_a_second_more(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(here.cache, runtime="fake") as bench:
        keys = needed_by(bench.decompose(bench.read(path)).plan)
        target, owner, store = bench.target.key, Owner.current(), bench.store
        store.claims.claim(target, keys, owner)
        store.claims.append_rounds(target, {key: (Round((1e-3,)), 0.1) for key in keys}, owner)
        store.claims.finish(target, keys, owner)
        assert store.measurements.watched(target) == []
    assert here("predict", path, "--no-measure", "--now").status == 0
    with Store.open(here.cache) as store:
        (second,) = store.measurements.watched(target)
    assert second.taken_s is not None and None not in second.kernels_s


def test_a_device_has_its_own_conditions(here: Here, tmp_path: Path) -> None:
    path = save(chain("Relu"), tmp_path, "relu.onnx")
    done = here("predict", path, "--now", "--device", "cuda")
    assert done.status == 2
    assert "--now is for processors" in done.complaint


def test_another_host_has_no_present(here: Here, model: Path) -> None:
    done = here("predict", model, "--now", "--on", "zen5")
    assert done.status == 2
    assert "--now" in done.complaint and "--on" in done.complaint


def test_bricks_that_no_time_was_left_to_renew_are_said(
    here: Here, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", model, "--now", "--budget", 0)
    (now,) = here(*words, "--json").json["models"]
    assert now["old_bricks"] == 0, "they were measured within the last minutes"
    assert "not measured again" not in here(*words).out
    monkeypatch.setattr(measuring, "SAME_PERIOD_S", 0)
    (now,) = here(*words, "--json").json["models"]
    assert now["old_bricks"] == len(rounds(here, model))
    said = " ".join(here(*words).out.split())
    assert f"mlp: {now['old_bricks']} bricks were not measured again for now" in said
