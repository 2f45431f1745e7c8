from pathlib import Path
from typing import Any

import pytest
from commands import Here, chain, rounds
from factories import model, node, save, value
from refusals import refused

from bricks.errors import WorkerError
from bricks.measure.conditions import StopRule
from bricks.measure.protocol.request import Request
from bricks.measure.protocol.walking import LoadPiece, LoadPieces, RunWalk, Walked
from bricks.measure.sampler import Sampler
from bricks.measure.supervisor import WorkerDied, WorkerKilled
from bricks.measure.walk import single_step

FAULTY = ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Neg")
ORDERS = "Sigmoid=crash,Tanh=hang,Exp=memory,Log=error"
REASONS = {
    "Sigmoid": "it crashed the process (SIGABRT)",
    "Tanh": "it did not finish within 1 s",
    "Exp": "out of memory: ordered by BRICKS_FAKE_FAULTS",
    "Log": "failed as ordered by BRICKS_FAKE_FAULTS",
}


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of six bricks, four of which cannot be measured."""
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", ORDERS)
    return save(chain(*FAULTY), tmp_path, "faulty.onnx")


def test_every_kind_of_failure_is_recorded_and_the_rest_is_measured(
    here: Here, faulty: Path
) -> None:
    done = here("measure", faulty, "--timeout", 1, "--json")
    assert done.status == 1
    facts = done.json
    assert (facts["bricks"], facts["new_bricks"], facts["unfinished"]) == (6, 2, 0)
    assert sorted(f["reason"] for f in facts["failures"]) == sorted(REASONS.values())
    lines = done.err.splitlines()
    assert len(lines) == 4
    for operator, reason in REASONS.items():
        (line,) = [line for line in lines if f" ({operator}) " in line]
        assert line.startswith("bricks: brick b1-")
        assert f"could not be measured: {reason}; --retry tries again" in line
    is_a_gap_in_predictions(here, faulty)
    is_not_tried_again_but_on_demand(here, faulty)


def is_a_gap_in_predictions(here: Here, faulty: Path) -> None:
    done = here("predict", faulty, "--json")
    assert done.status == 1
    (row,) = done.json["models"]
    assert (row["estimate_s"], row["low_s"], row["high_s"]) == (None, None, None)
    known, missing = (sum(b["occurrences"] for b in row[of]) for of in ("bricks", "missing"))
    assert (known, missing) == (2, 4)
    assert {gap["reason"] for gap in row["missing"]} == set(REASONS.values())
    assert row["error"].startswith("faulty: no estimate without b1-")
    assert row["measured_s"] > 0


def is_not_tried_again_but_on_demand(here: Here, faulty: Path) -> None:
    done = here("measure", faulty, "--json")  # without --timeout: a hang would take a minute
    assert done.status == 1
    assert done.json["new_bricks"] == 0
    assert len(done.json["failures"]) == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BRICKS_FAKE_FAULTS")
        assert len(here("measure", faulty, "--json").json["failures"]) == 4
        done = here("measure", faulty, "--retry", "--json")
        assert (done.status, done.err) == (0, "")
        assert (done.json["new_bricks"], done.json["failures"]) == (4, [])
        assert here("predict", faulty).status == 0


def test_comparing_says_which_brick_failed_and_goes_on_with_other_models(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=crash")
    bad = save(chain("Relu", "Sigmoid", "Neg"), tmp_path, "bad.onnx")
    fine = save(chain("Relu", "Neg"), tmp_path, "fine.onnx")
    done = here("compare", bad, fine, "--json")
    assert done.status == 1
    first, second = done.json["models"]
    assert "it crashed the process (SIGABRT)" in first["error"]
    assert first["error"].startswith("bad: no estimate without b1-")
    assert first["estimate_s"] is first["ratio"] is None
    assert first["coverage"] == pytest.approx(2 / 3)
    assert (first["bricks"], first["new_bricks"]) == (3, 2)
    assert second["error"] is None
    assert (second["coverage"], second["new_bricks"]) == (1.0, 0)
    assert done.json["summary"]["models"] == 1
    assert done.complaint == first["error"]


@pytest.mark.parametrize("first", [True, False])
def test_only_the_model_that_damages_the_worker_is_left_without_an_estimate(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=damage")
    chains = [("Relu", "Neg"), ("Exp",), ("Tanh", "Relu")]
    fine = [save(chain(*c), tmp_path, f"fine{i}.onnx") for i, c in enumerate(chains)]
    bad = save(chain("Sigmoid", "Abs"), tmp_path, "bad.onnx")
    done = here("compare", *([bad, *fine] if first else [*fine, bad]), "--json")
    errors = {row["model"]: row["error"] for row in done.json["models"]}
    assert (done.status, done.json["summary"]["models"]) == (1, 3)
    assert "it crashed the process (SIGABRT)" in errors.pop("bad")
    assert list(errors.values()) == [None] * 3
    row = here("predict", bad, "--json", "--no-measure").json["models"][0]
    assert [gap["reason"] for gap in row["missing"]] == [REASONS["Sigmoid"]]


def test_bricks_measured_together_with_one_that_damages_the_worker_have_latencies(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=damage")
    paths = [save(chain(op), tmp_path, f"{op}.onnx") for op in ("Relu", "Sigmoid", "Neg")]
    facts = here("measure", *paths, "--json").json
    assert (facts["new_bricks"], facts["unfinished"]) == (2, 0)
    assert [f["reason"] for f in facts["failures"]] == [REASONS["Sigmoid"]]


def test_a_whole_model_that_crashes_takes_no_brick_with_it(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Relu+Neg=crash")
    path = save(chain("Relu", "Neg"), tmp_path, "pair.onnx")
    done = here("compare", path, "--json")
    assert done.status == 1
    assert done.complaint == ("pair: the whole model was not run: it crashed the process (SIGABRT)")
    (row,) = done.json["models"]
    assert row["new_bricks"] == 2
    assert here("predict", path, "--no-measure").status == 0
    monkeypatch.delenv("BRICKS_FAKE_FAULTS")
    done = here("compare", path, "--retry", "--json")
    assert (done.status, done.json["models"][0]["new_bricks"]) == (0, 0)


def test_a_budget_that_ends_leaves_the_rest_for_the_next_run(here: Here, tmp_path: Path) -> None:
    path = save(chain("Relu", "Neg"), tmp_path, "pair.onnx")
    done = here("measure", path, "--budget", 0, "--json")
    assert done.status == 1
    assert done.json["unfinished"] > 0
    assert "run the same command again to go on" in done.complaint
    assert here("measure", path, "--json").json["new_bricks"] == 2


def test_a_brick_that_fails_only_later_takes_nothing_with_it(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=later,Exp=later")
    path = save(chain("Relu", "Sigmoid", "Neg", "Exp"), tmp_path, "later.onnx")
    facts = here("measure", path, "--json").json
    assert (facts["new_bricks"], facts["unfinished"]) == (2, 0)
    assert [f["reason"] for f in facts["failures"]] == [REASONS["Log"]] * 2


def test_what_fits_into_memory_only_alone_is_measured_alone(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=crowd,Exp=memory")
    path = save(chain("Relu", "Sigmoid", "Neg", "Exp"), tmp_path, "crowd.onnx")
    facts = here("measure", path, "--json").json
    assert (facts["new_bricks"], facts["unfinished"]) == (3, 0)
    assert [f["reason"] for f in facts["failures"]] == [REASONS["Exp"]]
    # Rounds that other processes disturbed do not count, and more are taken for them.
    assert all(len(kept) >= StopRule().min_rounds_for(0.0) for kept in rounds(here.cache).values())


class Together:
    """A worker that breaks off whenever steps run unannounced, for no step's sake."""

    starts = 1
    fresh = True

    def ask(self, request: Request[Any], **_: Any) -> Any:
        if not isinstance(request, RunWalk):
            return None
        if not request.announce:
            raise WorkerDied("it crashed the process (SIGSEGV)")
        return Walked(((),) * len(request.steps))

    ask_afresh = ask


class Choosy(Together):
    """A worker that cannot load several things at once, and one of them not at all."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def ask(self, request: Request[Any], **_: Any) -> None:
        if isinstance(request, LoadPieces):
            raise WorkerError("out of memory")
        if isinstance(request, LoadPiece):
            if request.key == "b1-1":
                raise WorkerError("there is no kernel for it")
            self.loaded.append(request.key)

    ask_afresh = ask

    def reset(self) -> None:
        self.loaded.clear()


def test_what_cannot_be_loaded_at_once_is_loaded_one_by_one() -> None:
    worker: Any = Choosy()
    keys = ["b1-0", "b1-1", "b1-2"]
    sampler = Sampler(worker, {key: single_step(key, b"", inputs=1, outputs=1) for key in keys})
    sampler.prepare()
    assert worker.loaded == ["b1-0", "b1-2"]
    assert sampler.failed_keys.failures == {"b1-1": "there is no kernel for it"}


def test_bricks_that_only_break_off_together_are_no_failures() -> None:
    sampler = Sampler(Together(), {"net": single_step("b1-0", b"", inputs=1, outputs=1)})
    sampler.prepare()
    with refused(WorkerError, "SIGSEGV"):
        sampler.walk("net", 2)
    assert sampler.failed_keys.failures == {}


class Killed(Together):
    """A worker that is killed the first ``kills`` times that anything runs."""

    def __init__(self, kills: int) -> None:
        self.kills = kills

    def ask(self, request: Request[Any], *, on_step: Any = None, **_: Any) -> Any:
        if not isinstance(request, RunWalk):
            return None
        if self.kills:
            self.kills -= 1
            on_step(0)
            raise WorkerKilled("its process was killed (SIGKILL)")
        return Walked(((),) * len(request.steps))


@pytest.mark.parametrize("kills", [2, 3])
def test_a_brick_is_blamed_for_kills_from_outside_only_when_they_go_on(kills: int) -> None:
    sampler = Sampler(Killed(kills), {"net": single_step("b1-0", b"", inputs=1, outputs=1)})
    sampler.prepare()
    sampler.walk("net", 1)
    assert list(sampler.failed_keys.failures) == (["b1-0"] if kills == 3 else [])


def test_a_model_with_outputs_that_nobody_reads_runs_on_the_fake_runtime(
    here: Here, tmp_path: Path
) -> None:
    nodes = [node("Split", ["x"], ["read", "unread"], axis=1), node("Relu", ["read"], ["y"])]
    proto = model(nodes, [value("x", [1, 64])], [value("y", [1, 32])])
    done = here("compare", save(proto, tmp_path), "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["models"][0]["ratio"] == pytest.approx(1, abs=0.02)
