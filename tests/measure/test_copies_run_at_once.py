"""Bricks of several copies: measured while further copies of their model run on other cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Here, chain, until
from factories import mlp, save
from fork_server import children
from refusals import refused

from bricks import Bench, Runtime
from bricks.errors import UsageError
from bricks.measure.further_copies import FurtherCopies
from bricks.measure.jobs import ModelJob
from bricks.measure.sampler import Sampler
from bricks.measure.supervisor import Supervisor, WorkerKilled, WorkerSettings
from bricks.session.measuring import bricks_job
from bricks.session.options import Options, runtime_of
from bricks.session.workspace import Workspace
from bricks.system import logical_cpus


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ModelJob]:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Workspace.open(tmp_path / "cache", Options(runtime="fake")) as workspace:
        yield bricks_job(workspace, workspace.read(path))


@pytest.fixture
def copies() -> Iterator[FurtherCopies]:
    """Two further copies with the fake runtime."""
    settings = WorkerSettings("fake", 1, 0)
    with FurtherCopies([Supervisor(settings), Supervisor(settings)]) as copies:
        yield copies


def test_several_copies_are_part_of_a_target_and_one_is_not() -> None:
    one = Runtime("fake", "1", "cpu", 1, "none")
    assert "copies" not in one.identity
    two = Runtime("fake", "1", "cpu", 1, "none", copies=2)
    assert two.identity["copies"] == 2
    assert Runtime(**two.to_json()) == two


def test_copies_run_from_before_a_block_until_it_ends(copies: FurtherCopies, job: ModelJob) -> None:
    pools = threading.active_count()
    for _ in range(2):  # the second time, they are loaded
        with copies.running(job, timeout_s=10):
            before_s = copies.processor_s()
            until(lambda before_s=before_s: copies.processor_s() > before_s)
            copies.check()
    assert threading.active_count() == pools
    assert len(children()) >= 2


def test_a_copy_that_is_killed_is_an_error_in_one_line(
    copies: FurtherCopies, job: ModelJob
) -> None:
    def killed() -> None:
        with copies.running(job, timeout_s=10):
            copies._workers[1].kill()
            until(lambda: copies._running[1].done())
            copies.check()

    with refused(WorkerKilled, "further copy 2"):
        killed()
    with copies.running(job, timeout_s=10):  # another worker takes its place
        copies.check()


def test_a_model_that_crashes_stops_the_measuring_of_its_copies(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=crash")
    path = save(chain("Relu", "Sigmoid"), tmp_path, "crashing.onnx")
    done = here("predict", path, "--copies", 2)
    assert done.status == 1
    assert "further copy 1" in done.complaint


def test_without_copies_nothing_more_is_started(job: ModelJob) -> None:
    with FurtherCopies().running(job, timeout_s=10):
        assert not FurtherCopies()


def test_every_round_is_sampled_while_they_run(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bricks, whole models and call overhead; and what watches the host for reference kernels."""
    running = list[bool]()
    walk, started = Sampler.walk, list[FurtherCopies]()

    def noting(copies: FurtherCopies, workers: list[Supervisor]) -> None:
        copies._workers, copies._loaded, copies._walk = workers, [], None
        copies._running = []
        started.append(copies)

    def walked(*arguments: object, **options: object) -> object:
        running.append(any(copies._running for copies in started))
        return walk(*arguments, **options)  # type: ignore[arg-type]  # passed on as given

    monkeypatch.setattr(FurtherCopies, "__init__", noting)
    monkeypatch.setattr(Sampler, "walk", walked)
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("compare", path, "--copies", 2).status == 0
    assert running and all(running)


def test_an_answer_tells_the_latency_of_each_and_the_throughput_of_all(
    here: Here, tmp_path: Path
) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    done = here("predict", path, "--copies", 3, "--threads", 1, "--json").json
    (of,) = done["models"]
    assert of["copies"] == 3 and of["threads"] == 1
    rate = 3 / of["estimate_s"]
    assert f"in each of 3 copies at once, together {rate:.4g} samples/s" in done["answer"]
    assert done["runtime"]["copies"] == 3


def test_a_comparison_names_its_copies(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    done = here("compare", path, "--copies", 2, "--json").json
    assert done["copies"] == 2 and done["answer"].startswith("With 2 copies at once, ")
    assert here("compare", path, "--json").json["copies"] == 1


def test_the_present_speed_is_that_next_to_copies(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bricks.session.predicting.WATCHED_S", 0.0)
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("predict", path, "--copies", 2, "--now").status == 0


def test_what_one_copy_takes_is_no_answer_for_several(here: Here, tmp_path: Path) -> None:
    """Neither measured here alone nor published is how copies slow each other down."""
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("predict", path).status == 0
    done = here("predict", path, "--copies", 2, "--no-measure", "--json")
    (of,) = done.json["models"]
    assert done.status == 1
    assert of["estimate_s"] is None and of["missing"]
    assert {gap["reason"] for gap in of["missing"]} == {"not measured on this target"}


def test_more_copies_than_processors_are_refused(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    done = here("predict", path, "--copies", 1000, "--threads", 1, runtime=None)
    most = len(logical_cpus())
    assert done.status == 2 and "give --copies" in done.complaint
    assert f"--copies {most}" in done.complaint or os.cpu_count() != most


def test_copies_share_the_cores_unless_threads_are_given() -> None:
    from bricks.backends import describe

    info = describe("fake")
    assert runtime_of(Options(runtime="fake", copies=1000), info).threads == 1
    assert runtime_of(Options(runtime="fake", copies=1000, threads=3), info).threads == 3


def test_copies_of_a_gpu_are_refused() -> None:
    from bricks.backends import describe

    with refused(UsageError, "--copies", "--device"):
        runtime_of(Options(runtime="fake", copies=2, device="cuda"), describe("fake"))


@pytest.mark.skipif(len(logical_cpus()) < 2, reason="each copy needs a core")
def test_copies_of_a_real_runtime_are_measured(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", threads=1, copies=2) as bench:
        estimate = bench.predict(bench.read(path))
        assert estimate.latency_s.value > 0
        assert bench.target.runtime.copies == 2
