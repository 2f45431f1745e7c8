"""Kills, races, full disks: afterwards the cache is whole, and the next run goes on from there."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache as remembered
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from caches import FILE, NO_HARM, Kept, Tally, kept, problems
from commands import (
    COMMAND,
    CommandResult,
    bricks,
    chain,
    ended,
    environment,
    started,
    until,
)
from factories import save
from fault_points import PARENT, WORKER, Run, run_until
from fork_server import ForkServer
from tiers import slow_but

from bricks.samples.call_overhead import PROBES

FIRST, SECOND = "squeezenet", "resnet18"


@remembered
def distinct(*models: str) -> int:
    """How many bricks the models have together: that depends on the processor."""
    with TemporaryDirectory() as folder:
        words = ("--threads", 1, "--json", "--cache", folder)
        count: int = bricks("decompose", *models, *words).json["union"]["bricks"]
    return count


# The command line, with its lock files in the folder that is named.
LOCKING_IN = """
import sys
from pathlib import Path
from bricks.cli.main import main
from bricks.measure import timing_lock
timing_lock.FOLDERS = (Path(sys.argv.pop(1)),)
sys.exit(main())
"""


@contextmanager
def measuring(turn: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that waits for its turn to time with those of the same ``turn`` alone."""
    locks, temporary = (turn.with_name(f"{turn.name}-{what}") for what in ("locks", "temporary"))
    for folder in (locks, temporary):
        folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", LOCKING_IN, str(locks)]
    with started(*words, command=command, TMPDIR=str(temporary)) as process:
        yield process


def states_of_bricks(cache: Path) -> list[str]:
    """The states of measurements of bricks."""
    return [state for (_, key), (state, _) in kept(cache).items() if key.startswith("b1-")]


class Kills:
    """Runs of one model that are killed at their fault points, each in a cache of its own."""

    def __init__(self, folder: Path, server: ForkServer, runtime: str) -> None:
        self._folder, self._server = folder, server
        self._runtime = runtime
        self._base = folder / "base"  # a cache that holds another model and the call overhead
        self._model = save(chain("Relu", "Sigmoid", "Tanh", "Relu"), folder, "model.onnx")
        base = self._measure(self._base, save(chain("Floor"), folder, "base.onnx"))
        assert base.done.status == 0, base.done.err
        self.points = self._measure(self._fresh("points"), self._model).points

    def _fresh(self, name: str) -> Path:
        return shutil.copytree(self._base, self._folder / name)

    def _measure(self, cache: Path, model: Path, **where: Any) -> Run:
        words = ("--runtime", self._runtime, "--threads", 1, "--precision", 0.5, "--json")
        return run_until(self._server, "measure", model, *words, "--cache", cache, **where)

    def then_resumed(self, at: int, victim: str) -> Tally:
        """What killing a run at this point does to its cache, and to the run that goes on."""
        cache, tally = self._fresh(f"{victim}{at}"), Tally()
        run = self._measure(cache, self._model, at=at, victim=victim)
        if victim == PARENT:  # its disturbed rounds may be fewer than those of the run counted
            tally.kills = run.done.status == -signal.SIGKILL
            assert tally.kills or run.done.status == 0, run.done.err
        else:
            assert (run.done.status, run.done.err) == (0, "")
            tally.kills = len(run.points) > at
        before = tally.compare(kept(self._base), cache)
        resumed = self._measure(cache, self._model).done
        assert (resumed.status, resumed.err) == (0, "")
        assert (resumed.json["failures"], resumed.json["unfinished"]) == ([], 0)
        tally.compare(before, cache)
        assert states_of_bricks(cache) == ["done"] * (1 + 3)
        shutil.rmtree(cache)
        if self._runtime == "fake":
            tally.doubled = 0  # its samples repeat themselves
        return tally


@pytest.fixture(
    scope="module", params=slow_but(lambda name: name == "fake", ["fake", "onnxruntime"])
)
def kills(
    request: pytest.FixtureRequest,
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Kills:
    return Kills(tmp_path_factory.mktemp("kills"), fork_server, request.param)


# A share is every so many fault points of a run, from another one on.
SHARES = 8


@pytest.mark.parametrize("share", slow_but(lambda share: share == 0, range(SHARES)))
def test_a_run_killed_at_any_transaction_loses_nothing(kills: Kills, share: int) -> None:
    """Before each, when all of it is written and nothing holds yet; and after the last one."""
    writes = [n for n, name in enumerate(kills.points) if name == "before a transaction"]
    chosen = [*writes, writes[-1] + 1][share::SHARES]
    assert len(chosen) > 1
    tallies = [kills.then_resumed(at, PARENT) for at in chosen]
    for at in reversed(writes[:share]):  # a quieter run than the counted one has fewer points
        if tallies[0].kills:
            break
        tallies.insert(0, kills.then_resumed(at, PARENT))
    assert [tally.harm for tally in tallies] == [NO_HARM] * len(tallies)
    assert tallies[0].kills == 1
    assert all(tally.finished for tally in tallies)


@pytest.mark.parametrize("share", slow_but(lambda share: share == 0, range(SHARES)))
def test_a_run_whose_worker_is_killed_at_any_request_starts_another(
    kills: Kills, share: int
) -> None:
    """While it waits for a request of each kind, and while it carries it out: first and last."""
    requests = {name for name in kills.points if "the request" in name}
    first = {kills.points.index(name) for name in requests}
    last = {len(kills.points) - 1 - kills.points[::-1].index(name) for name in requests}
    chosen = sorted(first | last)[share::SHARES]
    assert len(chosen) > 1
    tallies = [kills.then_resumed(at, WORKER) for at in chosen]
    assert [tally.harm for tally in tallies] == [NO_HARM] * len(chosen)
    assert tallies[0].kills == 1


@pytest.mark.slow
def test_two_processes_that_really_measure_at_once_measure_each_brick_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = ("--threads", 1, "--precision", 0.5, "--cache", cache, "--json")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(measuring(tmp_path / models[0], "measure", *models, *words))
            for models in ((FIRST, SECOND), (SECOND, FIRST))
        ]
        done = [ended(process) for process in processes]
    measured_once(done, cache, bricks_in_all=distinct(FIRST, SECOND))
    # Whatever else was written on the way was temporary: no half of it can be found by anybody.
    assert [file.name for file in cache.iterdir()] == [FILE]
    locks = [f for model in (FIRST, SECOND) for f in (tmp_path / f"{model}-locks").iterdir()]
    assert locks  # of one process alone, if it has measured all before the other begins
    assert {lock.suffix for lock in locks} == {".lock"}
    for model in (FIRST, SECOND):
        assert list((tmp_path / f"{model}-temporary").iterdir()) == []


@pytest.mark.slow
def test_four_processes_at_once_measure_each_brick_once(tmp_path: Path) -> None:
    operators = ["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf", "Floor", "Ceil"]
    models = [
        save(chain(*(operators * 2)[i : i + 6]), tmp_path, f"{i}.onnx")
        for i in range(len(operators))
    ]
    cache = tmp_path / "cache"
    words = ("--runtime", "fake", "--cache", cache, "--json")
    # The call overhead is known, so that the first begins with its bricks at once.
    assert bricks("measure", save(chain(operators[-1]), tmp_path, "one.onnx"), *words).status == 0
    with ExitStack() as stack:
        # It has six of the bricks; the others take what is left, and wait for those.
        first = started("measure", models[0], *words, BRICKS_FAKE_PACE="0.02")
        processes = [stack.enter_context(first)]
        until(lambda: len(kept(cache)) > 1 + len(PROBES))
        processes += [
            stack.enter_context(
                started("measure", *models[i:], *models[:i], *words, BRICKS_FAKE_PACE="0.001")
            )
            for i in (3, 5, 8)
        ]
        done = [ended(process) for process in processes]
    measured_once(done, cache, bricks_in_all=len(operators), each=(6, 10, 10, 10), before=1)
    assert sum(run.json["new_bricks"] > 0 for run in done) > 1, "they never met"


def measured_once(
    done: list[CommandResult],
    cache: Path,
    bricks_in_all: int,
    each: Sequence[int] = (),
    before: int = 0,
) -> None:
    assert [(run.status, run.err) for run in done] == [(0, "")] * len(done)
    needed = list(each) or [bricks_in_all] * len(done)
    assert [run.json["bricks"] for run in done] == needed
    assert sum(run.json["new_bricks"] for run in done) == bricks_in_all - before
    states = states_of_bricks(cache)
    assert states == ["done"] * bricks_in_all
    assert problems(cache) == []


class Disk:
    """A small disk: a file system of its own, which only processes in its namespace see.

    Where none can be had, no file may grow beyond its size instead.
    """

    FULL = "cannot be written, the disk is full: free some space and run again"
    LIMITED = "check the disk, and whether a quota or a limit to the size of files is reached"

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        mount = f"mount -t tmpfs -o size={size_bytes} none '{folder}' && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", mount],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        self.real = self._holder.stdout.readline() == b"ready\n"
        pid = self._holder.pid
        self.seen_from_here = Path(f"/proc/{pid}/root{folder}") if self.real else folder
        self._inside = ["nsenter", "-t", str(pid), "-U", "-m", "--preserve-credentials"]
        self._limit_bytes = size_bytes
        self.message = self.FULL if self.real else self.LIMITED

    def close(self) -> None:
        self._holder.communicate()  # the file system goes with the last process that sees it

    def resize(self, size_bytes: int) -> None:
        self._limit_bytes = size_bytes
        if self.real:
            words = ["mount", "-o", f"remount,size={size_bytes}", str(self.folder)]
            subprocess.run([*self._inside, *words], check=True)

    def __call__(self, *arguments: object) -> CommandResult:
        prefix = self._inside if self.real else ["prlimit", f"--fsize={self._limit_bytes}"]
        words = [*prefix, *COMMAND, *map(str, arguments), "--cache", str(self.folder / "cache")]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
        return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "small", 40_000)
    yield disk
    disk.close()


@pytest.mark.slow
def test_a_full_disk_loses_nothing_and_is_gone_on_with_when_there_is_room(disk: Disk) -> None:
    tally, before = Tally(), Kept()
    for size_bytes in (40_000, 200_000, 260_000):
        disk.resize(size_bytes)
        done = disk("measure", FIRST, "--threads", 1, "--precision", 0.5)
        assert (done.status, done.out) == (1, "")
        assert disk.message in done.complaint
        before = tally.compare(before, disk.seen_from_here / "cache")
        tally.amid_rounds += any(taken for _, taken in before.values())
        if before:  # what is there can be looked at on the full disk too
            assert disk("cache", "verify").status == 0
            assert disk("cache", "stats").status == 0
    assert tally.amid_rounds > 1
    disk.resize(50_000_000)
    done = disk("measure", FIRST, "--threads", 1, "--precision", 0.5, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["new_bricks"] == distinct(FIRST)
    tally.compare(before, disk.seen_from_here / "cache")
    print(f"full disk: {tally}")
    assert tally.harm == NO_HARM
    assert disk("predict", FIRST, "--no-measure", "--threads", 1).status == 0
