"""One process of a user times at a time on a host, whatever each one's environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import PATIENCE_S, environment
from factories import mlp, save
from refusals import refused

from bricks import Bench
from bricks.errors import WorkerError
from bricks.measure import timing_lock as locking
from bricks.store.owners import process_name

# Takes the lock as another user would, so that nobody who really measures on this host is met.
HOLDER = """
import os, sys
os.getuid = lambda: int(sys.argv[1])
from bricks.measure.timing_lock import timing_lock
with timing_lock(lambda message: print("waits", flush=True)):
    print("times", flush=True)
    sys.stdin.read()
"""
# Takes it in the folders that are named.
ELSEWHERE = """
import sys
from pathlib import Path
from bricks.measure import timing_lock
timing_lock.FOLDERS = tuple(map(Path, sys.argv[1:]))
with timing_lock.timing_lock(lambda message: print(message, flush=True)):
    print("times", flush=True)
"""
USER = 10**9 + os.getpid()
# Where processes look, unlike this one: tests have a folder of their own.
FOLDERS = locking.FOLDERS


def folders(parent: Path, *names: str) -> tuple[Path, ...]:
    for name in ("shared", "private", "own"):
        (parent / name).mkdir(exist_ok=True)
    return tuple(parent / name for name in names)


@contextmanager
def holder(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that times until its input ends, with a folder for temporary files of its own."""
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(USER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(temporary), XDG_RUNTIME_DIR=str(temporary)),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def _locks_are_removed() -> Iterator[None]:
    yield
    for folder in FOLDERS:
        (folder / f"bricks-timing-{USER}.lock").unlink(missing_ok=True)


@pytest.mark.usefixtures("_locks_are_removed")
def test_processes_with_temporary_folders_of_their_own_wait_for_each_other(tmp_path: Path) -> None:
    with holder(tmp_path / "one") as one:
        assert said(one) == "times"
        with holder(tmp_path / "two") as two:
            assert said(two) == "waits"
            assert one.poll() is None
            one.communicate("", timeout=PATIENCE_S)
            assert said(two) == "times"
    assert [list(folder.iterdir()) for folder in tmp_path.iterdir()] == [[], []]


def test_processes_that_share_only_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    """As jobs do whose other folders are private, or cannot be written to."""
    order: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locking, "FOLDERS", folders(tmp_path, "shared", "private"))
        with locking.timing_lock():
            other = subprocess.Popen(
                [sys.executable, "-c", ELSEWHERE, str(tmp_path / "own"), str(tmp_path / "shared")],
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            order.append(said(other))
        order.append(said(other))
    other.communicate(timeout=PATIENCE_S)
    assert order[0].startswith("waiting for ") and process_name(os.getpid()) in order[0]
    assert order[1] == "times"


def test_two_names_of_one_folder_are_locked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = folders(tmp_path, "shared")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setattr(locking, "FOLDERS", (folder, tmp_path / "link", tmp_path / "nowhere"))
    with locking.timing_lock(lambda message: pytest.fail("it waits for itself")):
        assert len(list(folder.iterdir())) == 1


def test_the_lock_is_free_again_after_each_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "FOLDERS", folders(tmp_path, "shared", "private"))
    for _ in range(2):
        with locking.timing_lock(lambda message: pytest.fail("nobody else times")):
            pass


def test_a_runtime_that_takes_no_real_time_takes_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = folders(tmp_path, "shared")
    monkeypatch.setattr(locking, "FOLDERS", (folder,))
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        assert bench.measure([bench.read(save(mlp(), tmp_path))]).new_bricks > 0
    assert not list(folder.iterdir())


def test_the_lock_is_no_link_to_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = folders(tmp_path, "shared")
    monkeypatch.setattr(locking, "FOLDERS", (folder,))
    with locking.timing_lock():
        (lock,) = folder.iterdir()
        assert lock.stat().st_mode & 0o777 == 0o600
    lock.unlink()
    lock.symlink_to(tmp_path / "victim")
    with refused(WorkerError, lock):
        with locking.timing_lock():
            pass
    assert not (tmp_path / "victim").exists()


def test_where_no_folder_can_be_written_to_the_last_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "FOLDERS", (tmp_path / "one", tmp_path / "other"))
    with refused(WorkerError, tmp_path / "other"):
        with locking.timing_lock():
            pass
