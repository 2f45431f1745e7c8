import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from commands import environment
from factories import mlp, model, node, value
from fork_server import children
from refusals import refused

from bricks.backends.fake.backend import FakeBackend
from bricks.backends.input_values import filled
from bricks.errors import WorkerError
from bricks.measure import worker_process
from bricks.measure.protocol.models import ReadExecuted
from bricks.measure.protocol.request import Request, request_to_json
from bricks.measure.protocol.walking import (
    BackendSettings,
    BindPiece,
    Hello,
    LoadPiece,
    LoadPieces,
    MakeRegion,
    RunWalk,
    UnloadAll,
    Walked,
)
from bricks.measure.supervisor import Supervisor, WorkerDied, WorkerKilled, WorkerSettings
from bricks.measure.worker.instruments import CacheEvictor
from bricks.measure.worker.worker import Worker
from bricks.measure.worker_process import WorkerCrashed, worker_command
from bricks.system.host_conditions import KERNELS

WORKER = [sys.executable, "-m", "bricks.measure.worker"]
HELLO = Hello(BackendSettings("fake", threads=1, seed=0))
EMPTY_WALK = RunWalk((), passes=0, announce=False)


def conversation(*requests: object) -> list[dict[str, Any]]:
    """A worker's answers; it ends by itself when nobody asks any more."""
    known = [request_to_json(r) if isinstance(r, Request) else r for r in requests]
    lines = [r if isinstance(r, str) else json.dumps(r) for r in known]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        WORKER, input=text, capture_output=True, text=True, timeout=60, env=environment()
    )
    assert done.returncode == 0
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_whole_conversation() -> None:
    model = mlp(widths=(4, 4)).SerializeToString()
    hello, region, load, place, *walk, unload = conversation(
        HELLO,
        MakeRegion(1000),
        LoadPiece("a", "b1-00", model, optimize=False),
        BindPiece("a/0", "a", (0,), (64,)),
        RunWalk((("a/0", True), ("a/0", False)), passes=3, announce=True),
        UnloadAll(),
    )
    assert hello["ok"] > 0
    assert [region, load, place, unload] == [{"ok": None}] * 4
    assert walk[:-1] == [{"at": 0}, {"at": 1}] * 4  # one pass to warm up, and three
    timed, untimed = walk[-1]["ok"]["samples"]
    assert len(timed) == 3
    assert all(0 < sample < 1 for sample in timed)
    assert untimed == []


def test_what_cannot_be_done_is_an_answer_and_not_the_end() -> None:
    answers = conversation(
        UnloadAll(),
        LoadPiece("a", "k", b"", optimize=False),
        {"op": "Dance"},
        {},
        "this is no JSON",
        "[]",
        {"op": "MakeRegion"},
        HELLO,
    )
    assert answers[0] == {"ok": None}
    errors = [answer["error"] for answer in answers[1:-1]]
    assert len(errors) == 6
    assert not any("\n" in error for error in errors)
    assert errors[1] == "the worker does not know this operation"
    assert "ok" in answers[-1]


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(WorkerSettings("fake", threads=1, seed=0)) as one:
        yield one


# Of a backend that no worker has; the worker is that of the fake one, for its quick start.
NONSENSE = WorkerSettings("nonsense", 1, 0, command=worker_command(sys.executable, "fake"))


def test_a_backend_that_does_not_start_is_the_same_error_each_time() -> None:
    with Supervisor(NONSENSE) as supervisor:
        for _ in range(2):
            with refused(WorkerError, "nonsense"):
                supervisor.ask(UnloadAll(), timeout_s=30)


def test_a_worker_can_be_awakened_before_it_is_asked(supervisor: Supervisor) -> None:
    supervisor.start()
    assert (supervisor.starts, supervisor.fresh) == (1, True)
    supervisor.start()
    assert supervisor.ask(UnloadAll(), timeout_s=30) is None
    assert (supervisor.starts, supervisor.fresh) == (1, False)
    supervisor.reset()
    supervisor.start()
    supervisor.reset()  # before it was ready: the next one is asked its own questions
    assert supervisor.ask(UnloadAll(), timeout_s=30) is None
    assert supervisor.starts == 3


def test_what_keeps_an_awakened_worker_from_starting_is_told_when_it_is_asked() -> None:
    with Supervisor(NONSENSE) as supervisor:
        supervisor.start()
        with refused(WorkerError, "nonsense"):
            supervisor.ask(UnloadAll(), timeout_s=30)
    with refused(WorkerError) as caught:
        supervisor.start()
    assert "nonsense" not in str(caught.value)


def test_a_program_that_cannot_be_started_is_named() -> None:
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=("/nowhere/python",))) as supervisor,
        refused(WorkerError, "/nowhere/python"),
    ):
        supervisor.ask(UnloadAll(), timeout_s=30)


@pytest.mark.parametrize(
    ("program", "error", "named"),
    [
        ("raise SystemExit('no such module')", WorkerCrashed, (1, "no such module")),
        ("import os; os.abort()", WorkerCrashed, ("SIGABRT",)),
        ("import os; os.kill(os.getpid(), 9)", WorkerKilled, ("SIGKILL",)),
        ("import os; os.kill(os.getpid(), 40)", WorkerCrashed, (40,)),
    ],
)
def test_a_worker_that_dies_says_why(
    program: str, error: type[WorkerDied], named: tuple[object, ...]
) -> None:
    command = (sys.executable, "-c", program)
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=command)) as supervisor,
        refused(error, *named),
    ):
        supervisor.ask(UnloadAll(), timeout_s=30)


@pytest.mark.parametrize("kills", [2, 3])
def test_a_worker_that_is_killed_from_outside_is_asked_again(tmp_path: Path, kills: int) -> None:
    """Twice may be an accident; after the third time it is told."""
    count = tmp_path / "count"
    script = (
        f"import os, pathlib, runpy; p = pathlib.Path({str(count)!r});"
        "n = len(p.read_text()) if p.exists() else 0; p.write_text('x' * (n + 1));"
        f"n < {kills} and os.kill(os.getpid(), 9);"
        "runpy.run_module('bricks.measure.worker', run_name='__main__')"
    )
    settings = WorkerSettings("fake", 1, 0, command=(sys.executable, "-c", script))
    with Supervisor(settings) as supervisor:
        if kills < 3:
            assert supervisor.ask_afresh(UnloadAll(), timeout_s=30) is None
        else:
            with refused(WorkerKilled, "SIGKILL"):
                supervisor.ask_afresh(UnloadAll(), timeout_s=30)
    assert len(count.read_text()) == 3


def test_a_worker_that_the_kernel_kills_for_lack_of_memory_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kills = iter(range(9))
    monkeypatch.setattr(worker_process, "oom_kills", lambda: next(kills))
    command = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=command)) as supervisor,
        refused(WorkerDied, "SIGKILL"),
    ):
        supervisor.ask_afresh(UnloadAll(), timeout_s=30)
    assert supervisor.starts == 1


@pytest.mark.parametrize("timing", [True, False])
def test_only_a_worker_that_times_nothing_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch, timing: bool
) -> None:
    """It would change how long bricks take; what the user says of the allocator holds for all."""
    own = "glibc.malloc.arena_max=2"
    monkeypatch.setenv("GLIBC_TUNABLES", own)
    program = (
        "import json, os\n"
        "hello = json.loads(input())\n"
        "print(json.dumps({'ok': {}}), flush=True)\n"
        "input()\n"
        "told = [hello['settings'][5], os.environ['GLIBC_TUNABLES']]\n"
        "print(json.dumps({'error': json.dumps(told)}), flush=True)"
    )
    settings = WorkerSettings("fake", 1, 0, command=(sys.executable, "-c", program), timing=timing)
    with Supervisor(settings) as supervisor, pytest.raises(WorkerError) as told:
        supervisor.ask(UnloadAll(), timeout_s=30)
    for_timing, tunables = json.loads(str(told.value))
    assert for_timing is timing
    *keeping, last = tunables.split(":")
    assert last == own
    assert bool(keeping) is not timing


def test_a_program_that_speaks_something_else_is_told() -> None:
    command = (sys.executable, "-c", "print('hello!', flush=True); input()")
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=command)) as supervisor,
        refused(WorkerDied, "hello!"),
    ):
        supervisor.ask(UnloadAll(), timeout_s=30)


def test_a_worker_that_stops_reading_is_given_up() -> None:
    program = """import time; print('{"ok":1}', flush=True); time.sleep(99)"""
    command = (sys.executable, "-c", program)
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=command)) as supervisor,
        refused(WorkerDied, "0 s"),
    ):
        supervisor.ask(ReadExecuted(b"x" * (1 << 20)), timeout_s=0.5)  # more than a pipe holds


def test_after_a_death_the_next_question_gets_a_new_worker(supervisor: Supervisor) -> None:
    supervisor.ask(UnloadAll(), timeout_s=30)
    with refused(WorkerDied, "0 s"):
        supervisor.ask(MakeRegion(1 << 28), timeout_s=0.0)
    assert supervisor.ask(UnloadAll(), timeout_s=30) is None
    assert supervisor.starts == 2


def test_long_messages_pass_in_both_directions(supervisor: Supervisor) -> None:
    widths = (8,) * 400
    model = mlp(widths=widths).SerializeToString()
    assert len(model) > 1 << 17  # more than a pipe holds
    answer = supervisor.ask(ReadExecuted(model), timeout_s=60)
    assert len(answer.types) > 1000


def loaded(supervisor: Supervisor) -> None:
    """Something is loaded and placed."""
    model = mlp(widths=(4, 4)).SerializeToString()
    supervisor.ask(MakeRegion(1000), timeout_s=30)
    supervisor.ask(LoadPiece("a", "b1-00", model, optimize=False), timeout_s=30)
    supervisor.ask(BindPiece("a/0", "a", (0,), (64,)), timeout_s=30)


def walk(supervisor: Supervisor, on_step: Callable[[int], None] | None) -> Walked:
    request = RunWalk((("a/0", True),), passes=3, announce=on_step is not None)
    return supervisor.ask(request, timeout_s=30, on_step=on_step)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(
    supervisor: Supervisor, kind: type[BaseException]
) -> None:
    loaded(supervisor)

    def interrupt(step: int) -> None:
        raise kind

    with pytest.raises(kind):
        walk(supervisor, interrupt)
    loaded(supervisor)
    assert len(walk(supervisor, None).samples) == 1
    assert supervisor.starts == 2


def test_a_worker_that_died_while_nobody_asked_is_replaced(supervisor: Supervisor) -> None:
    supervisor.ask(UnloadAll(), timeout_s=30)
    (worker,) = children()
    worker.kill()
    worker.wait(timeout=30)
    while supervisor.alive:  # a fork of the tests' server is noticed a moment later
        time.sleep(0.01)
    assert supervisor.ask(UnloadAll(), timeout_s=30) is None
    assert supervisor.starts == 2


def test_a_worker_outlives_the_thread_that_started_it(supervisor: Supervisor) -> None:
    thread = threading.Thread(target=lambda: loaded(supervisor))
    thread.start()
    thread.join()
    assert len(walk(supervisor, None).samples) == 1
    assert supervisor.starts == 1


def test_an_output_may_have_another_shape_in_each_run() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["r"]),
        node("Relu", ["r"], ["p"]),
        node("NonZero", ["p"], ["y"]),
    ]
    proto = model(nodes, [value("x", [64])], [value("y", [1, None], "INT64")])
    with Supervisor(WorkerSettings("onnxruntime", threads=1, seed=0)) as supervisor:
        load = LoadPiece("a", "b1-00", proto.SerializeToString(), optimize=False)
        supervisor.ask(load, timeout_s=30)
        supervisor.ask(BindPiece("a/0", "a", (None,), (None,)), timeout_s=30)
        request = RunWalk((("a/0", True),), passes=20, announce=False)
        (samples,) = supervisor.ask(request, timeout_s=30).samples
    assert len(samples) == 20


def test_a_walk_says_which_conditions_it_met(supervisor: Supervisor) -> None:
    loaded(supervisor)
    taken = walk(supervisor, None)
    host = taken.conditions.host
    assert host is not None and host.taken_s is not None
    assert list(host.by_kernel) == list(KERNELS)
    assert all(0 < latency_s < 1 for latency_s in host.by_kernel.values())
    assert taken.conditions.waited_share is None or 0 <= taken.conditions.waited_share
    announced = walk(supervisor, lambda step: None)
    assert announced.conditions.host is None  # a step that may crash is nobody else's fault


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_shared_memory_holds_ordinary_numbers_of_every_type(dtype: str) -> None:
    kind = np.dtype(dtype)
    numbers = np.abs(filled(1 << 16, seed=0).view(kind).astype(np.float64))
    assert np.isfinite(numbers).all()
    assert numbers.min() >= float(ml_dtypes.finfo(kind).smallest_normal)
    assert len(np.unique(numbers)) > 50


def test_every_walk_begins_with_ordinary_numbers() -> None:
    worker = Worker(lambda message: None)
    worker.answer(HELLO)
    worker.answer(MakeRegion(100_000))
    region = worker.pieces.region.memory
    assert len(region) >= 100_000
    before = region.copy()
    region[:] = 0xFF  # NaN, as a walk that feeds on itself ends up with
    worker.answer(EMPTY_WALK)
    assert np.array_equal(region, before)
    assert np.isfinite(region[:100_000].view(np.float16)).all()


def test_several_are_loaded_at_once_and_each_is_said() -> None:
    said: list[dict[str, Any]] = []
    worker = Worker(said.append)
    worker.answer(HELLO)
    relu = model([node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    one = LoadPiece("", "k", relu.SerializeToString(), optimize=False)
    loads_s = worker.answer(LoadPieces(tuple(replace(one, name=name) for name in "abc")))
    assert said == [{"at": 0}, {"at": 1}, {"at": 2}]
    assert len(loads_s) == 3 and min(loads_s) > 0
    for name in "abc":
        worker.answer(BindPiece(name, name, (None,), (0,)))


def test_what_is_read_to_evict_stays_for_what_is_loaded_next() -> None:
    memories: list[np.ndarray] = []

    def load(memory: np.ndarray) -> Any:
        memories.append(memory)

    evictor = CacheEvictor(load)
    evictor.announce(3000)
    evictor.reader(1000)
    evictor.reader(2000)
    evictor.unload()
    evictor.announce(2000)
    evictor.reader(2000)
    assert len({memory.ctypes.data for memory in memories}) == 1
    assert len(memories) == 3
    evictor.reader(5000)
    assert len(memories[-1]) >= 5000


def test_it_is_said_where_there_is_too_little_memory_to_evict_the_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ones = np.ones

    def scarce(size: int, dtype: Any) -> Any:
        if size > 3 << 20:
            raise MemoryError
        return ones(size, dtype)

    monkeypatch.setattr("bricks.measure.worker.instruments.np.ones", scarce)
    worker = Worker(lambda message: None)
    worker.answer(HELLO)
    relu = model([node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    worker.answer(MakeRegion(64, eviction_bytes=8 << 20))
    worker.answer(LoadPiece("a", "k", relu.SerializeToString(), optimize=False))
    worker.answer(BindPiece("a", "a", (None,), (0,)))
    walk = RunWalk((("a", True),), passes=1, announce=False)
    assert worker.answer(replace(walk, eviction_bytes=8 << 20)).eviction_short
    assert not worker.answer(replace(walk, eviction_bytes=1 << 20)).eviction_short
    assert not worker.answer(walk).eviction_short


def test_numbers_have_both_signs_where_something_loaded_is_sign_sensitive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minding = {"Relu"}
    monkeypatch.setattr(FakeBackend, "sign_sensitive", lambda self, operator: operator in minding)
    worker = Worker(lambda message: None)
    worker.answer(HELLO)
    worker.answer(MakeRegion(100_000))
    relu = model([node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])

    def negative() -> float:
        worker.answer(EMPTY_WALK)
        return float((worker.pieces.region.memory[:100_000].view(np.float32) < 0).mean())

    assert negative() == 0
    worker.answer(LoadPiece("a", "k", relu.SerializeToString(), optimize=False))
    assert 0.4 < negative() < 0.6
    worker.answer(UnloadAll())
    assert negative() == 0
