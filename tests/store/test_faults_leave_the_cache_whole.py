"""Kills, races, full disks: afterwards the cache is whole, and the next run goes on from there."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache as remembered
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from caches import FILE, NO_HARM, Kept, Tally, kept, problems
from commands import (
    COMMAND,
    PATIENCE_S,
    CommandResult,
    bricks,
    chain,
    ended,
    environment,
    gone,
    rounds,
    started,
    until,
    workers,
)
from factories import save

from bricks.measure.state_panel import panel_keys
from bricks.samples.call_overhead import PROBES

KILLS = 25  # of each kind
FIRST, SECOND = "squeezenet", "resnet18"


@remembered
def distinct(*models: str) -> int:
    """How many bricks the models have together: that depends on the processor."""
    with TemporaryDirectory() as folder:
        words = ("--threads", 1, "--json", "--cache", folder)
        found: int = bricks("decompose", *models, *words).json["union"]["bricks"]
    return found


# The command line, with its lock files in the folder that is named.
LOCKING_IN = """
import sys
from pathlib import Path
from bricks.cli.main import main
from bricks.measure import timing_lock
timing_lock.FOLDERS = (Path(sys.argv.pop(1)),)
sys.exit(main())
"""


class Runs:
    """Runs of ``bricks measure`` with the real runtime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self.base = folder / "base"
        with measuring(self.base, *self.words(self.base, FIRST)) as process:
            assert ended(process).status == 0

    def words(self, cache: Path, *models: str, precision: float = 0.5) -> tuple[object, ...]:
        options = ("--threads", 1, "--precision", precision, "--cache", cache, "--json")
        return ("measure", *models, *options)

    def fresh(self) -> Path:
        """A cache that holds the first model, and nothing of the second."""
        self._count += 1
        return shutil.copytree(self.base, self.folder / f"cache{self._count}")

    @contextmanager
    def of_second(self, cache: Path, *, precision: float = 0.5) -> Iterator[subprocess.Popen[str]]:
        with measuring(cache, *self.words(cache, SECOND, precision=precision)) as process:
            yield process

    def seconds(self, precision: float) -> tuple[float, float]:
        """How long measuring the second model takes, and for how long of it a worker lives."""
        begin, born = time.monotonic(), 0.0
        with self.of_second(self.fresh(), precision=precision) as process:
            while process.poll() is None:
                born = born or bool(workers(process.pid)) * time.monotonic()
                time.sleep(0.01)
        assert process.returncode == 0
        return time.monotonic() - begin, time.monotonic() - born


@contextmanager
def measuring(turn: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that waits for its turn to time with those of the same ``turn`` alone."""
    locks, temporary = (turn.with_name(f"{turn.name}-{what}") for what in ("locks", "temporary"))
    for folder in (locks, temporary):
        folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", LOCKING_IN, str(locks)]
    with started(*words, command=command, TMPDIR=str(temporary)) as process:
        yield process


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def states_of_bricks(cache: Path) -> list[str]:
    """Of bricks of models: a machine that changes its state has the panel measured too."""
    panel = set(panel_keys())
    return [
        state
        for (_, key), (state, _) in kept(cache).items()
        if key.startswith("b1-") and key not in panel
    ]


def complete(cache: Path) -> bool:
    found = states_of_bricks(cache)
    return len(found) == distinct(FIRST, SECOND) and set(found) == {"done"}


@pytest.mark.slow
def test_kill_9_at_fifty_random_moments_loses_nothing(runs: Runs) -> None:
    """Of parents and of workers, on caches of their own, side by side to save time."""
    parents, children = Tally(), Tally()
    for _ in zip_longest(kills_of_parents(runs, parents), kills_of_workers(runs, children)):
        time.sleep(0.003)
    print(f"parents: {parents}\nworkers: {children}")
    assert parents.kills == children.kills == KILLS
    assert parents.finished >= KILLS * distinct(FIRST)
    assert parents.amid_rounds > 0
    assert children.finished >= KILLS // 2 * distinct(FIRST)
    assert (parents.harm, children.harm) == (NO_HARM, NO_HARM)


def kills_of_parents(runs: Runs, tally: Tally) -> Iterator[None]:
    """Kill runs, one after another on one cache until it is complete, then on the next."""
    moments = random.Random(1)
    took_s, _ = runs.seconds(precision=0.002)  # so that there are rounds to be killed amid
    cache, before = runs.fresh(), kept(runs.base)
    while tally.kills < KILLS:
        known = count(cache)
        with runs.of_second(cache, precision=0.002) as process:
            if tally.kills % 5 == 4:  # chance alone may never meet one that is sampling
                while process.poll() is None and count(cache) == known:
                    yield
                yield from waiting(process, moments.uniform(0, 0.1))
            else:
                yield from waiting(process, moments.uniform(0, 1.2 * took_s))
            children = workers(process.pid)
            if process.poll() is None:
                process.kill()
                tally.kills += process.wait() == -signal.SIGKILL  # or it had just come to its end
            until(lambda gone_too=children: gone(gone_too))
        before = tally.compare(before, cache)
        tally.amid_rounds += any(taken and state == "open" for state, taken in before.values())
        if process.returncode == 0:
            assert complete(cache)
            took_s *= 0.9
            cache, before = runs.fresh(), kept(runs.base)
    with runs.of_second(cache, precision=0.002) as process:
        yield from waiting(process, PATIENCE_S)
        done = ended(process)
    tally.compare(before, cache)
    assert (done.status, done.err, done.json["failures"]) == (0, "", [])
    assert complete(cache)


def kills_of_workers(runs: Runs, tally: Tally) -> Iterator[None]:
    """Kill workers, at most two of a run: what is killed again and again is rightly given up."""
    moments = random.Random(2)
    _, lives_s = runs.seconds(precision=0.5)
    before = kept(runs.base)
    while tally.kills < KILLS:
        cache = runs.fresh()
        with runs.of_second(cache) as process:
            for _ in range(min(2, KILLS - tally.kills)):
                while process.poll() is None and not workers(process.pid):
                    yield
                yield from waiting(process, moments.uniform(0, lives_s))
                hit = any(map(killed, workers(process.pid)))
                tally.kills += hit
                lives_s *= 1.0 if hit else 0.8  # the host is less busy than it was
            yield from waiting(process, PATIENCE_S)
            done = ended(process)
        assert (done.status, done.err) == (0, "")
        facts = done.json
        assert (facts["failures"], facts["unfinished"]) == ([], 0)
        assert facts["new_bricks"] == facts["bricks"] == distinct(SECOND)
        tally.compare(before, cache)
        assert complete(cache)
    predicted = bricks("predict", SECOND, "--no-measure", "--threads", 1, "--cache", cache)
    assert (predicted.status, predicted.err) == (0, "")


def count(cache: Path) -> int:
    """Rounds that a cache holds, also while it is used."""
    return sum(map(len, rounds(cache).values()))


def waiting(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """For so long, or until the process ends."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        yield


def killed(worker: psutil.Process) -> bool:
    """Whether it lived, and was killed."""
    with suppress(psutil.NoSuchProcess):
        if worker.status() != psutil.STATUS_ZOMBIE:
            worker.kill()
            return True
    return False


@pytest.mark.slow
def test_two_processes_that_really_measure_at_once_measure_each_brick_once(runs: Runs) -> None:
    cache = runs.folder / "cache"
    with ExitStack() as stack:
        processes = [
            stack.enter_context(measuring(runs.folder / models[0], *runs.words(cache, *models)))
            for models in ((FIRST, SECOND), (SECOND, FIRST))
        ]
        done = [ended(process) for process in processes]
    measured_once(done, cache, bricks_in_all=distinct(FIRST, SECOND))
    # Whatever else was written on the way was temporary: no half of it can be found by anybody.
    assert [file.name for file in cache.iterdir()] == [FILE]
    locks = [f for model in (FIRST, SECOND) for f in (runs.folder / f"{model}-locks").iterdir()]
    assert locks  # of one process alone, if it has measured all before the other begins
    assert {lock.suffix for lock in locks} == {".lock"}
    for model in (FIRST, SECOND):
        assert list((runs.folder / f"{model}-temporary").iterdir()) == []


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
