"""A walk is timed once its passes find in the caches what one of many would find there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from factories import model, node, value

from bricks.backends.base import Binding
from bricks.backends.fake.backend import FakeBackend
from bricks.backends.instruments import Instruments
from bricks.measure.protocol.walking import (
    BackendSettings,
    BindPiece,
    Hello,
    LoadPiece,
    RunWalk,
    UnloadAll,
)
from bricks.measure.worker.worker import Worker
from bricks.system.host_conditions import KERNELS
from bricks.units.sample import Sample


class Clock:
    """Time that passes only while something runs."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


CLOCK = Clock()
MODEL = model(
    [node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])]
).SerializeToString()


class Counting:
    """Something loaded that counts its runs at its only place, each of which takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.runs = 0

    def bind(self, binding: Binding, region: np.ndarray) -> Counting:
        return self

    def sample(self) -> Sample:
        self.runs += 1
        CLOCK.now_s += self.seconds
        return Sample(self.seconds)


KERNEL = Counting(1e-6)  # all reference kernels
LOADED: dict[str, Counting] = {}  # by key


class CountedInstruments(Instruments):
    """Instruments that only count."""

    def eviction_read(self, memory: np.ndarray) -> Counting:
        return Counting()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr("bricks.measure.worker.walking.time.perf_counter", CLOCK)
    monkeypatch.setattr(
        FakeBackend, "load", lambda self, proto, *, key, **_: LOADED.get(key, KERNEL)
    )
    monkeypatch.setattr(FakeBackend, "instruments", lambda self: CountedInstruments())
    one = Worker(lambda message: None)
    one.answer(Hello(BackendSettings("fake", threads=1, seed=0)))
    return one


def runs(
    worker: Worker,
    steps: Sequence[tuple[str, Counting]],
    *,
    passes: int = 2,
    announce: bool = False,
) -> int:
    """How often a walk has run each step."""
    for name, one in steps:
        LOADED[name] = one
        worker.answer(LoadPiece(name, name, MODEL, optimize=False))
        worker.answer(BindPiece(name, name, (), ()))
    before = [one.runs for _, one in steps]
    worker.answer(RunWalk(tuple((name, True) for name, _ in steps), passes, announce))
    (found,) = {one.runs - had for (_, one), had in zip(steps, before, strict=True)}
    return found


def test_where_others_ran_in_between_it_takes_several_passes(worker: Worker) -> None:
    here, there = [("a", Counting()), ("b", Counting())], [("c", Counting())]
    assert runs(worker, here) == 10 + 2
    assert runs(worker, there) == 10 + 2
    assert runs(worker, here) == 10 + 2


def test_what_was_run_last_needs_one_pass(worker: Worker) -> None:
    steps = [("a", Counting()), ("b", Counting())]
    runs(worker, steps)
    assert runs(worker, steps) == 1 + 2
    assert runs(worker, steps[:1]) == 10 + 2  # another walk, of some of the same steps


def test_a_rehearsal_counts_as_a_pass(worker: Worker) -> None:
    steps = [("a", Counting())]
    assert runs(worker, steps, announce=True, passes=0) == 1
    assert runs(worker, steps) == 9 + 2
    assert runs(worker, steps) == 1 + 2


def test_long_passes_leave_little_to_the_next(worker: Worker) -> None:
    long, other = [("a", Counting(0.04))], [("b", Counting())]
    assert runs(worker, long) == 1 + 2
    assert runs(worker, other) == 10 + 2
    assert runs(worker, long, announce=True, passes=0) == 1
    assert runs(worker, long) == 0 + 2  # the rehearsal was long enough


def test_many_short_steps_take_no_longer_than_they_matter(worker: Worker) -> None:
    steps = [(str(number), Counting(0.3e-3)) for number in range(10)]
    assert runs(worker, steps) == 1 + 2  # a pass takes 3 ms, and 2 ms are enough


def test_a_model_warms_up_as_long_as_its_bricks_do(worker: Worker) -> None:
    whole, bricks = [("a", Counting(4e-3))], [("b", Counting())]
    runs(worker, bricks)
    assert runs(worker, whole) == 8 + 2  # 30 ms


def test_what_is_loaded_anew_was_never_run(worker: Worker) -> None:
    steps = [("a", Counting())]
    runs(worker, steps)
    worker.answer(UnloadAll())
    assert runs(worker, steps) == 10 + 2


def kernel_runs(worker: Worker, step: Counting) -> int:
    """How often a walk over this step has run the reference kernels."""
    before = KERNEL.runs
    runs(worker, [("a", step)])
    return KERNEL.runs - before


def test_kernels_are_timed_anew_after_ten_times_as_long_as_they_take(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KERNEL, "seconds", 1e-3)
    step = Counting()
    once = kernel_runs(worker, step)  # before the walk, and not at its end
    assert once == 3 * len(KERNELS)  # a warm-up and two runs of each
    CLOCK.now_s += 9 * once * KERNEL.seconds
    assert kernel_runs(worker, step) == 0
    CLOCK.now_s += 2 * once * KERNEL.seconds
    assert kernel_runs(worker, step) == once


def test_kernels_are_timed_before_and_after_a_long_walk(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KERNEL, "seconds", 1e-3)
    assert kernel_runs(worker, Counting(1.0)) == 2 * 3 * len(KERNELS)
