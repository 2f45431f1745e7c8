"""Damaged files, clocks that jump, folders that cannot be written: what is wrong is said."""

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from caches import FILE, Tally, kept, problems
from commands import Here, Outcome, bricks, chain, environment
from factories import save
from store_examples import keys_up_to, make_decomposition, make_target, open_with_target

from bricks.measure.measurement import Round
from bricks.store import Owner, Store

MODEL = "squeezenet"
LOOK = {
    "predict": ("predict", MODEL, "--no-measure", "--json"),
    "stats": ("cache", "stats", "--json"),
    "systems": ("systems", "--json"),
    "verify": ("cache", "verify", "--json"),
}
YEAR_S = 365 * 86400.0
TARGET = make_target()
KEYS = keys_up_to(6)[1:]
ANYBODY = replace(Owner.current(), token="anybody")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a cache that knows a real model, measured by the fake runtime."""
    folder = tmp_path_factory.mktemp("whole")
    assert bricks("measure", MODEL, "--runtime", "fake", "--cache", folder).status == 0
    return (folder / FILE).read_bytes()


def look(here: Here, name: str) -> Outcome:
    if name == "predict":
        return here(*LOOK[name])
    return here.plain(*LOOK[name], "--cache", here.cache)


def lay(here: Here, content: bytes) -> Path:
    shutil.rmtree(here.cache, ignore_errors=True)
    here.cache.mkdir()
    file = here.cache / FILE
    file.write_bytes(content)
    return file


# Files that are cut off


@pytest.mark.parametrize(
    "left",
    [
        lambda size: 1, lambda size: 50, lambda size: 99, lambda size: 100, lambda size: 2000,
        lambda size: 4096, lambda size: 4097, lambda size: size // 2,
        lambda size: size // 2 // 4096 * 4096, lambda size: size - 4096, lambda size: size - 1,
    ],
)  # fmt: skip
def test_a_file_that_is_cut_off_is_told_by_every_command(
    here: Here, whole: bytes, left: Callable[[int], int]
) -> None:
    size = left(len(whole))
    file = lay(here, whole[:size])
    of = f"of {len(whole)} bytes" if size >= 100 else "bytes, within its header"
    for done in (*(look(here, name) for name in LOOK), here("measure", MODEL)):
        assert (done.status, done.out) == (1, "")
        assert f"{file} is not a bricks cache any more" in done.complaint
        assert f"(the file is damaged: it ends after {size} {of})" in done.complaint
        assert "move it away or give another --cache" in done.complaint
    assert file.read_bytes() == whole[:size]
    file.rename(here.cache / "damaged")
    facts = here("measure", MODEL, "--json").json
    assert facts["new_bricks"] == facts["bricks"] > 0


def test_a_file_that_is_cut_off_to_nothing_is_not_taken_for_a_sound_cache(here: Here) -> None:
    file = lay(here, b"")
    for name in ("stats", "verify"):
        done = look(here, name)
        assert (done.status, done.out) == (1, "")
        assert f"{file} is empty: nothing was ever kept in it, or its file was cut off" in done.err
    assert file.read_bytes() == b""


# Files that are overwritten in the middle


@pytest.mark.parametrize("size", [8, 64, 1024, 4096])
def test_whatever_is_overwritten_is_found_and_nobody_draws_conclusions_from_it(
    here: Here, whole: bytes, size: int
) -> None:
    """Forty places of each size, drawn anywhere in the file."""
    lay(here, whole)
    good = {name: look(here, name) for name in LOOK}
    before = kept(here.cache)
    draw = random.Random(size)
    found = harmless = 0
    for _ in range(40):
        at = draw.randrange(len(whole) - size)
        damaged = whole[:at] + draw.randbytes(size) + whole[at + size :]
        lay(here, damaged)
        verified = look(here, "verify")
        if verified.status == 0:  # it hit what is not in use: nothing has changed
            harmless += 1
            assert kept(here.cache) == before
            assert [look(here, name).out for name in LOOK] == [g.out for g in good.values()]
            continue
        found += 1
        assert verified.err.startswith("bricks: ")
        assert "move" in verified.err.splitlines()[-1]
        lay(here, damaged)
        predicted = look(here, "predict")
        assert "Traceback" not in predicted.err
        if predicted.status == 0:
            assert json.loads(predicted.out) == json.loads(good["predict"].out)
        counted = look(here, "stats")
        if counted.status == 0:  # it counts rows; how many samples they have is for them to say
            changes = counted.json.items() - good["stats"].json.items()
            assert {name for name, _ in changes} <= {"samples"}
        else:
            assert counted.complaint
    print(f"{size} bytes: {found} found, {harmless} harmless")
    assert found + harmless == 40
    assert found >= 10


def test_a_changed_digit_is_told_by_brick_and_round(here: Here, whole: bytes) -> None:
    file = lay(here, whole)
    query = (
        "SELECT brick_key, number, samples FROM rounds"
        " JOIN measurements ON measurements.id = measurement_id WHERE brick_key LIKE 'b1-%'"
    )
    with closing(sqlite3.connect(file)) as connection:
        key, number, samples = connection.execute(query).fetchall()[40]
    place = samples.index(".") + 1
    other = samples[:place] + str((int(samples[place]) + 1) % 10) + samples[place + 1 :]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE rounds SET samples = ? WHERE number = ? AND measurement_id ="
            " (SELECT id FROM measurements WHERE brick_key = ?)",
            (other, number, key),
        )
    found = look(here, "verify").json
    (problem,) = found["problems"]
    assert problem.startswith(f"measurement of {key} on t1-")
    assert problem.endswith(f"round {number}: it is not as it was written")
    assert found["advice"].startswith(f"to go on, move {file} away")
    done = here("predict", MODEL, "--no-measure")
    assert done.status == 1
    assert f"the measurement of {key} is damaged in the cache" in done.complaint
    assert "run 'bricks cache verify'" in done.complaint


def test_a_lost_page_is_told_by_table_and_by_how_much_can_be_read(here: Here, whole: bytes) -> None:
    file = lay(here, whole)
    with closing(sqlite3.connect(file)) as connection:
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'measurements'"
        ).fetchone()[0]
    at = (root - 1) * 4096
    lay(here, whole[:at] + b"\xa5" * 4096 + whole[at + 4096 :])
    done = look(here, "verify")
    assert done.status == 1
    found = done.json["problems"]
    assert any(line.startswith("database: table measurements: ") for line in found)
    assert "database: table measurements: only its first 0 rows can be read" in found
    assert not any("table bricks" in line or "table plans" in line for line in found)
    for command in (("measure", MODEL), ("predict", MODEL), ("compare", MODEL)):
        done = here(*command)
        assert done.status == 1
        assert "(the file is damaged)" in done.complaint


def test_an_index_that_lost_entries_measures_nothing_twice(here: Here, whole: bytes) -> None:
    """What an index lacks looks as if it were never measured."""
    file = lay(here, whole)
    count = "SELECT count(*) FROM measurements NOT INDEXED"
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_measurements_1'"
    with closing(sqlite3.connect(file)) as connection:
        ((rows,), (page,)) = (connection.execute(q).fetchone() for q in (count, query))
    head = (page - 1) * 4096
    leaf = b"\x0a\x00\x00\x00\x00\x10\x00\x00"  # one without entries
    lay(here, whole[:head] + leaf + whole[head + 8 :])
    done = here("measure", MODEL)
    assert done.status == 1
    assert "is damaged (database: table measurements: " in done.complaint
    assert "run 'bricks cache verify'" in done.complaint
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(count).fetchone() == (rows,)


# Files beside the database


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a killed run leaves: a write-ahead log that holds four walks over five keys."""
    owner = Owner.current()
    left = tmp_path / "killed"
    left.mkdir()
    with open_with_target(tmp_path / "living") as store:
        store.save_decomposition(make_decomposition((1, 2, 3, 4, 5)), TARGET.key)
        store.claim(TARGET.key, KEYS, owner)
        for number in range(4):
            walk = {key: (Round((0.5, number + 1.0)), 1.0) for key in KEYS}
            store.append_rounds(TARGET.key, walk, owner)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(tmp_path / "living" / (FILE + suffix), left)
    assert (left / f"{FILE}-wal").stat().st_size > 4096
    return left


def walks_in(cache: Path) -> int:
    """How many walks a cache holds; each is there for all of its keys or for none."""
    counts = {len(rounds) for _, rounds in kept(cache).values()}
    assert len(counts) <= 1
    return counts.pop() if counts else 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("how", ["cut off", "overwritten"])
def test_a_log_that_is_damaged_holds_whole_walks_or_nothing(
    killed: Path, share: float, how: str
) -> None:
    log = killed / f"{FILE}-wal"
    content = log.read_bytes()
    at = int(len(content) * share)
    rest = random.Random(at).randbytes(300) + content[at + 300 :] if how == "overwritten" else b""
    log.write_bytes((content[:at] + rest)[: len(content)])
    walks = walks_in(killed)
    assert walks <= 4
    assert walks == 4 or share < 1
    if kept(killed):
        assert problems(killed, real=False) == []
    with open_with_target(killed) as store:
        store.save_decomposition(make_decomposition((1, 2, 3, 4, 5)), TARGET.key)
        store.save_target(TARGET)
        claims = {claim.key: len(claim.rounds) for claim in store.claim(TARGET.key, KEYS, ANYBODY)}
        # This process made the claims, and it lives: they are still held, if they are there.
        assert claims in ({}, dict.fromkeys(KEYS, 0))
        assert store.verify() == []
    assert walks_in(killed) == walks


@pytest.mark.parametrize("content", [b"", b"\xa5" * 100, b"\xa5" * 32768, None])
def test_what_is_left_of_a_logs_index_does_not_matter(killed: Path, content: bytes | None) -> None:
    index = killed / f"{FILE}-shm"
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)
    assert walks_in(killed) == 4
    assert problems(killed, real=False) == []


# Clocks


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """Set the time of day; what is derived from it, such as starts of processes, moves too."""
    now, began = REAL_TIME, REAL_CREATE_TIME
    monkeypatch.setattr(time, "time", lambda: now() + ahead_s)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: began(self) + ahead_s)


REAL_TIME, REAL_CREATE_TIME = time.time, psutil.Process.create_time

OWNER = """
import sys, time
now, ahead_s = time.time, float(sys.argv[3])
time.time = lambda: now() + ahead_s
from bricks.measure.measurement import Round
from bricks.store import Owner, Store
folder, target = sys.argv[1:3]
keys = [f"b1-{number:04x}" for number in range(1, 6)]
owner = Owner.current()
with Store.open(folder) as store:
    store.claim(target, keys, owner)
    store.append_rounds(target, {key: (Round((0.5,)), 1.0) for key in keys}, owner)
    print("ready", flush=True)
    sys.stdin.readline()
    store.append_rounds(target, {key: (Round((0.25,)), 1.0) for key in keys}, owner)
    store.finish(target, keys, owner)
"""


@pytest.mark.parametrize("ours_s", [-YEAR_S, 0.0, YEAR_S])
@pytest.mark.parametrize("theirs_s", [-YEAR_S, 0.0, YEAR_S])
@pytest.mark.parametrize("dies", [False, True])
def test_a_clock_that_is_a_year_off_neither_steals_nor_sticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours_s: float, theirs_s: float, dies: bool
) -> None:
    with open_with_target(tmp_path) as store:
        store.save_decomposition(make_decomposition((1, 2, 3, 4, 5)), TARGET.key)
        other = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path), TARGET.key, str(theirs_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        set_clock(monkeypatch, ours_s)
        me = Owner.current()
        assert store.claim(TARGET.key, KEYS, me) == []
        assert store.held_by_others(TARGET.key, KEYS, me) == set(KEYS)
        if dies:
            other.kill()
            other.communicate()
            claims = store.claim(TARGET.key, KEYS, me)
            assert [(c.key, c.rounds) for c in claims] == [(key, (Round((0.5,)),)) for key in KEYS]
            store.finish(TARGET.key, KEYS, me)
        else:
            other.communicate("\n", timeout=60)
            assert other.returncode == 0
            assert store.claim(TARGET.key, KEYS, me) == []
        assert list(store.results(TARGET.key, KEYS)) == KEYS
        assert store.verify() == []


@pytest.mark.parametrize("jump_s", [-YEAR_S, YEAR_S])
def test_a_clock_that_jumps_while_something_is_claimed_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    me, other = Owner.current(), Owner.current()
    walk = {key: (Round((0.5,)), 1.0) for key in KEYS}
    with open_with_target(tmp_path) as store:
        store.claim(TARGET.key, KEYS, me)
        store.append_rounds(TARGET.key, walk, me)
        set_clock(monkeypatch, jump_s)
        assert store.claim(TARGET.key, KEYS, other) == []
        store.append_rounds(TARGET.key, walk, me)
        assert store.claim(TARGET.key, KEYS, other) == []
        set_clock(monkeypatch, 0.0)
        assert store.claim(TARGET.key, KEYS, other) == []
        store.finish(TARGET.key, KEYS, me)
        assert {len(m.rounds) for m in store.results(TARGET.key, KEYS).values()} == {2}


def test_a_claim_of_another_host_whose_lease_ends_next_year_does_not_stick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, me = replace(Owner.current(), host="elsewhere"), Owner.current()
    with open_with_target(tmp_path) as store:
        set_clock(monkeypatch, YEAR_S)
        store.claim(TARGET.key, KEYS, far)
        set_clock(monkeypatch, 0.0)
        assert store.claim(TARGET.key, KEYS, me) == []
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + 590)
        assert store.claim(TARGET.key, KEYS, me) == []
        store.renew(TARGET.key, far)  # it lives: what was seen before says nothing any more
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1180)
        assert store.claim(TARGET.key, KEYS, me) == []
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1790)
        assert [claim.key for claim in store.claim(TARGET.key, KEYS, me)] == KEYS


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
    tally = Tally()
    tally.compare({}, here.cache)
    assert tally.found == []


# Folders that cannot be written

# Permissions do not bind who may override them, such as root: that right is given up first.
UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def unprivileged(*words: object) -> Outcome:
    command = [sys.executable, "-c", UNPRIVILEGED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    return Outcome(done.returncode, done.stdout, done.stderr)


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


def in_locked(cache: Path, *words: object) -> Outcome:
    runtime = () if words[0] in ("cache", "systems") else ("--runtime", "fake")
    return unprivileged("-m", "bricks.cli.main", *words, *runtime, "--cache", cache)


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


def test_what_a_killed_run_left_in_a_read_only_folder_is_not_overlooked(killed: Path) -> None:
    """Its newest rounds are in the log, which can only be read where its index can be."""
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
        assert store.stats().samples == 5 * 4 * 2


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
