"""Damaged files: what is wrong is said, and nothing that is damaged is taken for whole."""

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from caches import (
    FILE,
    KEYS,
    LOOK,
    MODEL,
    TARGET,
    kept,
    lay,
    left_by_a_killed_run,
    look,
    problems,
    with_bricks,
)
from commands import Here
from tiers import slow_but

from bricks.store import Owner

# Files that are cut off


# In bytes, or a share of the file: within its header, within a page, and between two.
FEW, MORE = [99, 4097, 0.5], [1, 50, 100, 2000, 4096, 0.9, 0.999]


@pytest.mark.parametrize("left", slow_but(lambda left: left is FEW, [FEW, MORE]))
def test_a_file_that_is_cut_off_is_told_by_every_command(
    here: Here, whole: bytes, left: Sequence[float]
) -> None:
    sizes = [int(len(whole) * part) if part < 1 else int(part) for part in left]
    for size in (*sizes, len(whole) // 2 // 4096 * 4096):
        file = lay(here, whole[:size])
        of = f"of {len(whole)} bytes" if size >= 100 else "bytes, within its header"
        for done in (*(look(here, name) for name in LOOK), here("measure", MODEL)):
            assert (done.status, done.out) == (1, ""), size
            assert f"{file} is not a bricks cache any more" in done.complaint
            assert f"(the file is damaged: it ends after {size} {of})" in done.complaint
            assert "--cache" in done.complaint
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


@pytest.mark.parametrize(
    "size, count",
    slow_but(lambda each: each[0] == 4096, [(8, 20), (64, 20), (1024, 20), (4096, 6)]),
)
def test_whatever_is_overwritten_is_found_and_nobody_draws_conclusions_from_it(
    here: Here, whole: bytes, size: int, count: int
) -> None:
    """So many places of a size, drawn anywhere in the file."""
    lay(here, whole)
    good = {name: look(here, name) for name in LOOK}
    before = kept(here.cache)
    draw = random.Random(size)
    found = harmless = 0
    for _ in range(count):
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
    assert found + harmless == count
    assert found > count / 10


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
    report = look(here, "verify").json
    (problem,) = report["problems"]
    assert problem.startswith(f"measurement of {key} on t1-")
    assert problem.endswith(f"round {number}: it is not as it was written")
    assert report["advice"].startswith(f"to go on, move {file} away")
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
    problems = done.json["problems"]
    assert any(line.startswith("database: table measurements: ") for line in problems)
    assert "database: table measurements: only its first 0 rows can be read" in problems
    assert not any("table bricks" in line or "table plans" in line for line in problems)
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
    return left_by_a_killed_run(tmp_path)


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
    with with_bricks(killed) as store:  # it is gone on with
        # This process made the claims, and it lives: they are still held, if they are there.
        claims = store.claims.claim(TARGET.key, KEYS, Owner.current())
        assert not any(claim.rounds for claim in claims)
        assert store.contents.verify() == []
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
