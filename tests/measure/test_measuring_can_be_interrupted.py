import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import Here, chain, ended, gone, rounds, started, until, workers
from factories import save

from bricks.measure.conditions import StopRule

OPERATORS = ("Relu", "Sigmoid", "Tanh", "Exp")
PACE = {"BRICKS_FAKE_PACE": "0.05"}
FULL = 2  # rounds that a finished measurement of a part of a model has at least


@pytest.fixture
def model(here: Here, tmp_path: Path) -> Path:
    """A model whose bricks lack, while the call overhead is measured already."""
    return save(chain(*OPERATORS), tmp_path, "model.onnx")


def has_opened(cache: Path, pid: int) -> bool:
    """Whether a process has come as far as the cache, where it sees who measures what."""
    path = str((cache / "bricks.sqlite").resolve())
    return any(file.path == path for file in psutil.Process(pid).open_files())


def begun(cache: Path, least: int) -> bool:
    """Whether every brick has some rounds."""
    kept = rounds(cache)
    return len(kept) == len(OPERATORS) + 1 and min(map(len, kept.values())) >= least


def test_ctrl_c_ends_it_at_once_and_the_next_run_goes_on(here: Here, model: Path) -> None:
    words = ("measure", model, "--runtime", "fake", "--cache", here.cache)
    with started(*words, **PACE) as process:
        until(lambda: begun(here.cache, 1))
        children = workers(process.pid)
        assert children
        process.send_signal(signal.SIGINT)
        done = ended(process)
    assert (done.status, done.out) == (130, "")
    assert done.complaint == (
        "interrupted; what was measured is kept, the same command goes on from there"
    )
    assert gone(children)
    before = rounds(here.cache)
    assert sum(1 <= len(r) < FULL for r in before.values()) == len(OPERATORS)
    assert here.plain("cache", "verify", "--cache", here.cache).status == 0

    after = here("measure", model, "--json")
    assert (after.status, after.json["new_bricks"]) == (0, len(OPERATORS))
    for key, kept in rounds(here.cache).items():
        assert kept[: len(before[key])] == before[key]
        # Not begun again, and never more than the rule gives what is all of a model.
        assert FULL <= len(kept) <= len(before[key]) + StopRule().max_rounds * 3 // 2
    assert here("predict", model, "--no-measure").status == 0


@pytest.fixture
def hanging(here: Here, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in which a brick hangs; it would go on for an hour."""
    model = save(chain("Relu", "Erf"), tmp_path, "model.onnx")
    words = ("measure", model, "--runtime", "fake", "--cache", here.cache)
    struck = tmp_path / "struck"
    faults = {"BRICKS_FAKE_FAULTS": "Erf=hang", "BRICKS_FAKE_STRUCK": str(struck)}
    with started(*words, **faults) as process:
        until(struck.exists)
        assert process.poll() is None
        yield process


def test_ctrl_c_in_a_brick_that_hangs_ends_it_too(hanging: subprocess.Popen[str]) -> None:
    children = workers(hanging.pid)
    assert children
    hanging.send_signal(signal.SIGINT)
    assert ended(hanging).status == 130
    assert gone(children)


def test_a_killed_run_takes_a_worker_that_hangs_with_it(hanging: subprocess.Popen[str]) -> None:
    children = workers(hanging.pid)
    assert children
    hanging.kill()
    until(lambda: gone(children))


@pytest.mark.slow
def test_what_a_killed_run_held_is_free_for_one_that_waits(here: Here, model: Path) -> None:
    words = ("measure", model, "--runtime", "fake", "--cache", here.cache, "--json")
    with started(*words, **PACE) as first:
        until(lambda: begun(here.cache, 1))
        with started(*words) as second:
            until(lambda: has_opened(here.cache, second.pid))
            assert second.poll() is None
            first.kill()
            first.wait()
            done = ended(second)
    assert (done.status, done.err) == (0, "")
    assert done.json["new_bricks"] == len(OPERATORS)
