"""Clocks that jump, folders that cannot be written: the cache serves as well as it can."""

import itertools
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from caches import (
    FILE,
    KEYS,
    LOOK,
    MODEL,
    TARGET,
    lay,
    left_by_a_killed_run,
    look,
    problems,
    with_bricks,
)
from commands import CommandResult, Here, chain, environment
from factories import save
from fork_server import ForkServer
from store_processes import started

from bricks.samples.measurement import Round
from bricks.store import Owner, Store

YEAR_S = 365 * 86400.0

# Clocks


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """Set the time of day; what is derived from it, such as starts of processes, moves too."""
    now, began = REAL_TIME, REAL_CREATE_TIME
    monkeypatch.setattr(time, "time", lambda: now() + ahead_s)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: began(self) + ahead_s)


REAL_TIME, REAL_CREATE_TIME = time.time, psutil.Process.create_time


@pytest.mark.parametrize("dies", [False, True])
def test_a_clock_that_is_a_year_off_neither_steals_nor_sticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer, dies: bool
) -> None:
    apart = [(-YEAR_S, 0.0), (0.0, YEAR_S), (YEAR_S, -YEAR_S)]
    for ours_s, theirs_s in [(b, a) if dies else (a, b) for a, b in apart]:
        folder = tmp_path / f"{ours_s} {theirs_s}"
        words = ("measure_by_another_clock", folder, TARGET.key, theirs_s)
        with with_bricks(folder) as store, started(fork_server, 1, *words) as (other,):
            set_clock(monkeypatch, ours_s)
            me = Owner.current()
            assert store.claims.claim(TARGET.key, KEYS, me) == []
            if dies:
                other.kill()
                claims = store.claims.claim(TARGET.key, KEYS, me)
                expected = [(key, (Round((0.5,)),)) for key in KEYS]
                assert [(c.key, c.rounds) for c in claims] == expected
                store.claims.finish(TARGET.key, KEYS, me)
            else:
                other.go_on()
                assert other.fork.wait(60) == 0
                assert store.claims.claim(TARGET.key, KEYS, me) == []
            assert list(store.measurements.results(TARGET.key, KEYS)) == KEYS
            assert store.contents.verify() == []


@pytest.mark.parametrize("jump_s", [-YEAR_S, YEAR_S])
def test_a_clock_that_jumps_while_something_is_claimed_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    me, other = Owner.current(), Owner.current()
    walk = {key: (Round((0.5,)), 1.0) for key in KEYS}
    with with_bricks(tmp_path) as store:
        store.claims.claim(TARGET.key, KEYS, me)
        store.claims.append_rounds(TARGET.key, walk, me)
        set_clock(monkeypatch, jump_s)
        assert store.claims.claim(TARGET.key, KEYS, other) == []
        store.claims.append_rounds(TARGET.key, walk, me)
        assert store.claims.claim(TARGET.key, KEYS, other) == []
        set_clock(monkeypatch, 0.0)
        assert store.claims.claim(TARGET.key, KEYS, other) == []
        store.claims.finish(TARGET.key, KEYS, me)
        assert {len(m.rounds) for m in store.measurements.results(TARGET.key, KEYS).values()} == {2}


def test_a_claim_of_another_host_whose_lease_ends_next_year_does_not_stick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, me = replace(Owner.current(), host="elsewhere"), Owner.current()
    with with_bricks(tmp_path) as store:
        set_clock(monkeypatch, YEAR_S)
        store.claims.claim(TARGET.key, KEYS, far)
        set_clock(monkeypatch, 0.0)
        assert store.claims.claim(TARGET.key, KEYS, me) == []
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + 590)
        assert store.claims.claim(TARGET.key, KEYS, me) == []
        store.claims.renew(TARGET.key, far)  # it lives: what was seen before says nothing any more
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1180)
        assert store.claims.claim(TARGET.key, KEYS, me) == []
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1790)
        assert [claim.key for claim in store.claims.claim(TARGET.key, KEYS, me)] == KEYS


def test_a_run_whose_clock_jumps_all_the_time_measures_as_ever(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps, now = itertools.cycle((0.0, YEAR_S, -YEAR_S)), time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    one = save(chain("Relu", "Sigmoid", "Tanh"), tmp_path, "one.onnx")
    two = save(chain("Tanh", "Exp", "Relu", "Neg"), tmp_path, "two.onnx")
    for path, new in ((one, 3), (two, 2), (one, 0)):
        done = here("measure", path, "--json")
        assert (done.status, done.err, done.json["new_bricks"]) == (0, "", new)
        assert 0 <= done.json["wall_s"] < YEAR_S / 2
    with closing(sqlite3.connect(here.cache / FILE)) as connection:
        walls = connection.execute("SELECT wall_s FROM measurements UNION SELECT wall_s FROM plans")
        assert all(0 <= wall_s < YEAR_S / 2 for (wall_s,) in walls)
    assert problems(here.cache) == []


# Folders that cannot be written

# Permissions do not bind who may override them, such as root: that right is given up first.
UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def unprivileged(*words: object) -> CommandResult:
    command = [sys.executable, "-c", UNPRIVILEGED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    return CommandResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def locked(here: Here, whole: bytes) -> Path:
    lay(here, whole)
    return here.cache


def lock(cache: Path) -> None:
    for file in cache.iterdir():
        file.chmod(0o444)
    cache.chmod(0o555)
    tried = unprivileged("-c", f"open({str(cache / 'x')!r}, 'w')")
    assert "PermissionError" in tried.err, "this test can make no folder that cannot be written"


def in_locked(cache: Path, *words: object) -> CommandResult:
    runtime = () if words[0] in ("cache", "systems") else ("--runtime", "fake")
    return unprivileged("-m", "bricks.cli.main", *words, *runtime, "--cache", cache)


@pytest.mark.slow
def test_a_cache_in_a_read_only_folder_can_be_looked_into(
    here: Here, locked: Path, tmp_path: Path
) -> None:
    good = {name: look(here, name) for name in LOOK}
    before = (locked / FILE).read_bytes()
    lock(locked)
    try:
        for name, words in LOOK.items():
            done = in_locked(locked, *words)
            assert (done.status, done.err) == (0, ""), name
            assert done.json == good[name].json
        known = in_locked(locked, "measure", MODEL, "--json")
        assert (known.status, known.json["new_bricks"]) == (0, 0)
        new = save(chain("Relu", "Neg"), tmp_path, "new.onnx")
        for words in (("measure", new), ("compare", MODEL), ("predict", new), ("decompose", new)):
            done = in_locked(locked, *words)
            assert done.status == 1
            assert f"the cache {locked / FILE} cannot be written" in done.complaint
            assert "check its permissions, or give another --cache" in done.complaint
        assert (locked / FILE).read_bytes() == before
        assert [file.name for file in locked.iterdir()] == [FILE]
    finally:
        locked.chmod(0o755)


def test_what_a_killed_run_left_in_a_read_only_folder_is_not_overlooked(tmp_path: Path) -> None:
    """Its newest rounds are in the log, which can only be read where its index can be."""
    killed = left_by_a_killed_run(tmp_path)
    lock(killed)
    try:
        done = in_locked(killed, "cache", "stats", "--json")
        assert (done.status, done.json["samples"]) == (0, 5 * 4 * 2)
        killed.chmod(0o755)
        (killed / f"{FILE}-shm").unlink()
        killed.chmod(0o555)
        done = in_locked(killed, "cache", "stats", "--json")
        assert (done.status, done.out) == (1, "")
        assert f"{FILE}-wal holds what is newest: copy the folder" in done.complaint
    finally:
        killed.chmod(0o755)
    with Store.open(killed) as store:
        assert store.contents.stats().samples == 5 * 4 * 2


def test_a_read_only_folder_without_a_cache_is_one_line(here: Here, tmp_path: Path) -> None:
    here.cache.mkdir()
    lock(here.cache)
    try:
        done = in_locked(here.cache, "measure", save(chain("Relu"), tmp_path, "x.onnx"))
        assert done.status == 1
        assert "cannot be opened: check its permissions, or give another --cache" in done.complaint
    finally:
        here.cache.chmod(0o755)
    assert not os.listdir(here.cache)
