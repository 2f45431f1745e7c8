from __future__ import annotations

from pathlib import Path

import pytest

from bricks.report.tables import disturbance
from bricks.samples.measurement import Sampling
from bricks.system import ForeignLoad, ProcessorWait
from bricks.system import load as module


def test_own_work_and_that_of_workers_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, own, live, clock = (
        iter([100.0, 130.0]),
        iter([4.0, 9.0]),
        iter([1.0, 16.0]),
        iter([0, 20]),
    )
    monkeypatch.setattr(module, "busy_s", lambda: next(busy))
    monkeypatch.setattr(module.os, "times", lambda: (next(own), 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    load = ForeignLoad(lambda: next(live))
    assert load.cores() == pytest.approx((30 - 5 - 15) / 20)


def test_work_of_own_processes_that_have_ended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy, clock = iter([100.0, 130.0]), iter([0, 20])
    own = iter([(1.0, 1.0, 2.0, 3.0, 7.0), (2.0, 3.0, 6.0, 11.0, 27.0)])
    monkeypatch.setattr(module, "busy_s", lambda: next(busy))
    monkeypatch.setattr(module.os, "times", lambda: next(own))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    assert ForeignLoad().cores() == pytest.approx((30 - (1 + 2) - (4 + 8)) / 20)


def test_the_real_clocks_are_read() -> None:
    assert 0 <= ForeignLoad().cores()


@pytest.mark.parametrize(
    ("cores", "disturbed", "lines"), [(None, 0, 0), (0.02, 0, 0), (0.7, 0, 1), (0.7, 3, 2)]
)
def test_load_is_reported_if_it_matters(cores: float | None, disturbed: int, lines: int) -> None:
    found = Sampling(foreign_cores=cores, rounds=100, disturbed_rounds=disturbed)
    assert len(disturbance(found)) == lines
    (said,) = disturbance(Sampling(rounds=100, eviction_short=True))
    assert said.startswith("Too little memory was free")
    (said,) = disturbance(Sampling(rounds=100, separate=frozenset("ab")))
    assert said.startswith("2 bricks ran in separate calls")


def tasks(folder: Path, *waited_ns: int) -> None:
    for number, waited in enumerate(waited_ns):
        (folder / str(number)).mkdir(exist_ok=True)
        (folder / str(number) / "schedstat").write_text(f"123456 {waited} 7\n", encoding="ascii")


def test_waiting_of_all_threads_and_stolen_time_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, statistics = iter([10.0, 12.0]), tmp_path / "stat"
    threads = tmp_path / "task"
    threads.mkdir()
    monkeypatch.setattr(module, "TASKS", threads)
    monkeypatch.setattr(module, "STATISTICS", statistics)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module.os, "sysconf", lambda name: 100)
    statistics.write_text("cpu 1 0 1 7 0 0 0 500\ncpu0 1\n", encoding="ascii")
    tasks(threads, 1_000_000, 500_000_000)
    waiting = ProcessorWait()
    tasks(threads, 101_000_000, 700_000_000)
    statistics.write_text("cpu 1 0 1 7 0 0 0 550\ncpu0 1\n", encoding="ascii")
    assert waiting.share() == pytest.approx((0.1 + 0.2 + 0.5) / 2.0)


def test_a_system_without_these_counters_is_not_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TASKS", tmp_path / "none")
    assert ProcessorWait().share() is None
    monkeypatch.setattr(module, "TASKS", tmp_path)
    assert ProcessorWait().share() is None
