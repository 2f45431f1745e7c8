"""``bricks predict --now``: how long a model takes at the present speed of this host."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here, chain
from factories import mlp, save

from bricks import Bench
from bricks.samples.call_overhead import needed_by
from bricks.samples.measurement import Round
from bricks.session import present
from bricks.store import Owner, Store


@pytest.fixture(autouse=True)
def _no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are timed once, which the fake runtime varies by little."""
    monkeypatch.setattr(present, "WATCHED_S", 0.0)


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
    assert here("predict", path, "--now").status == 0
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
