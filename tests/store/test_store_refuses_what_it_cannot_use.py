import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from commands import until
from refusals import refused
from sqlalchemy import Connection
from store_examples import make_decomposition, make_target, measure, open_with_target

from bricks.errors import CacheDamaged, CacheLocked, DiskFull, StoreError
from bricks.samples.measurement import Measurement, Round
from bricks.store import SCHEMA_VERSION, Owner, Store, engine, layout, schema
from bricks.store.database import Database
from bricks.store.layout import LEASE_S
from bricks.store.views import BUSY_TIMEOUT_S

TARGET, OTHER = make_target(), make_target("other")

# A program that holds the lock of writers until its input ends.
HOLDER = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
held.execute("ROLLBACK")
"""


def set_version(folder: Path, version: object) -> None:
    with closing(sqlite3.connect(folder / "bricks.sqlite")) as connection, connection:
        connection.execute("UPDATE bricks_cache_info SET value = ?", (str(version),))


NEXT = SCHEMA_VERSION + 1


@pytest.mark.parametrize("version", [NEXT, 99])
def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    open_with_target(tmp_path).close()
    set_version(tmp_path, version)
    with refused(StoreError, tmp_path / "bricks.sqlite", version, SCHEMA_VERSION, "update bricks"):
        Store.open(tmp_path)
    set_version(tmp_path, SCHEMA_VERSION)
    with Store.open(tmp_path) as store:
        assert store.systems.targets() == [TARGET]


def add_note(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE plans ADD COLUMN note TEXT DEFAULT 'old'")


def copy_note(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE plans SET note = note || ' and migrated'")


def notes(folder: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(folder / "bricks.sqlite")) as connection:
        return connection.execute("SELECT note FROM plans").fetchall()


def old_cache(folder: Path) -> None:
    with open_with_target(folder) as store:
        store.plans.save(make_decomposition(), TARGET.key)


def test_an_older_schema_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_cache(tmp_path)
    monkeypatch.setattr(layout, "SCHEMA_VERSION", NEXT + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {NEXT + 1: copy_note, NEXT: add_note})
    for _ in range(2):  # the second time there is nothing left to do
        with Store.open(tmp_path) as store:
            assert store.systems.targets() == [TARGET]
            assert store.contents.stats().bricks == 2
        assert notes(tmp_path) == [("old and migrated",)]


def test_a_migration_that_fails_leaves_the_old_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(layout, "SCHEMA_VERSION", NEXT + 1)
        patch.setattr(schema, "MIGRATIONS", {NEXT: add_note, NEXT + 1: add_note})
        with refused(StoreError, tmp_path / "bricks.sqlite", "note"):
            Store.open(tmp_path)
    with refused(sqlite3.OperationalError, "note"):
        notes(tmp_path)
    with Store.open(tmp_path) as store:
        assert store.contents.stats().plans == 1


def test_an_older_schema_without_a_way_up_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_cache(tmp_path)
    monkeypatch.setattr(layout, "SCHEMA_VERSION", NEXT)
    with refused(StoreError, tmp_path / "bricks.sqlite", SCHEMA_VERSION, NEXT, "--cache"):
        Store.open(tmp_path)


def test_a_cache_of_the_first_schema_is_gone_on_with(tmp_path: Path) -> None:
    with open_with_target(tmp_path) as store:
        store.plans.save(make_decomposition(), TARGET.key)
        measure(store, TARGET, ["b1-0001"])
    with closing(sqlite3.connect(tmp_path / "bricks.sqlite")) as connection, connection:
        for column in ("host", "waited_share", "device_state"):
            connection.execute(f"ALTER TABLE rounds DROP COLUMN {column}")
        for table in ("bricks", "plans", "rounds"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        for column in ("round_count", "lease_until_monotonic_s"):
            connection.execute(f"ALTER TABLE measurements DROP COLUMN {column}")
        for column in ("given_name", "price_per_hour"):
            connection.execute(f"ALTER TABLE systems DROP COLUMN {column}")
        for table in ("networks", "watched"):
            connection.execute(f"DROP TABLE {table}")
    set_version(tmp_path, 1)
    with Store.open(tmp_path) as store:
        assert store.contents.stats().schema_version == SCHEMA_VERSION
        (measurement,) = store.measurements.results(TARGET.key, ["b1-0001"]).values()
        assert measurement == Measurement("b1-0001", (Round((0.5,)),), 1.0)
        assert store.contents.stats().plans == 0  # they said less, and are made anew
        assert store.contents.verify() == []
        measure(store, TARGET, ["b1-0002"])


def test_what_is_no_cache_is_refused_and_untouched(tmp_path: Path) -> None:
    """Neither a file that is no database, nor somebody else's database."""
    file = tmp_path / "bricks.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    songs = file.read_bytes()
    for content in (b"not a database, just text\n" * 400, b"\x00\xff" * 5000, songs):
        file.write_bytes(content)
        with refused(StoreError, file, "--cache"):
            Store.open(tmp_path)
        assert file.read_bytes() == content
        assert [p.name for p in tmp_path.iterdir()] == ["bricks.sqlite"]


def test_a_cache_with_an_unreadable_version_is_refused(tmp_path: Path) -> None:
    open_with_target(tmp_path).close()
    set_version(tmp_path, "one")
    with refused(StoreError, tmp_path / "bricks.sqlite", "--cache"):
        Store.open(tmp_path)


def test_a_damaged_file_is_a_store_error_and_verify_tells(tmp_path: Path) -> None:
    with open_with_target(tmp_path) as store:
        store.plans.save(make_decomposition(range(1, 200)), TARGET.key)
    file = tmp_path / "bricks.sqlite"
    content = bytearray(file.read_bytes())
    half = len(content) // 2 // 4096 * 4096
    content[half:] = b"\xff" * (len(content) - half)
    file.write_bytes(content)
    with refused(CacheDamaged, file, "--cache"), Store.open(tmp_path) as s:
        assert s.contents.verify()
        s.plans.load_bricks([f"b1-{number:04x}" for number in range(1, 200)])


def test_an_empty_file_becomes_a_cache(tmp_path: Path) -> None:
    (tmp_path / "bricks.sqlite").touch()
    with open_with_target(tmp_path) as store:
        assert store.systems.targets() == [TARGET]


def test_a_place_where_no_cache_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "bricks.sqlite").mkdir()
    for folder in (tmp_path / "file", tmp_path / "file" / "cache"):
        with refused(StoreError, folder, "--cache"):
            Store.open(folder)
    with refused(StoreError, tmp_path / "bricks.sqlite", "--cache"):
        Store.open(tmp_path)


def test_a_read_only_cache_can_be_read_and_not_written(tmp_path: Path) -> None:
    open_with_target(tmp_path).close()
    url = f"sqlite:///file:{tmp_path}/bricks.sqlite?mode=ro&uri=true"
    with Store.open(url) as store:
        assert store.systems.targets() == [TARGET]
        with refused(StoreError, tmp_path / "bricks.sqlite", "--cache"):
            store.systems.save_target(OTHER)


def test_a_url_without_a_driver_is_refused_and_its_password_not_shown() -> None:
    ends = ("x", "me:secret@host/db", "me:secret@host:port/db", "me:secret@[host/db")
    for scheme, end in [("postgresql+nodriver", ends[1]), *(("nonsense", end) for end in ends)]:
        with refused(StoreError, f"{scheme}://") as caught:
            Store.open(f"{scheme}://{end}")
        assert "secret" not in str(caught.value)


def test_a_full_disk_loses_the_one_call_and_nothing_before(tmp_path: Path) -> None:
    owner = Owner.current()
    open_with_target(tmp_path).close()
    database = Database.open(tmp_path, busy_timeout_s=BUSY_TIMEOUT_S, make=False)
    with Store(database, LEASE_S) as store:
        measure(store, TARGET, ["b1-0001"])
        store.claims.claim(TARGET.key, ["b1-0002"], owner)
        # The pool hands the same connection to the next caller in this thread.
        with database.reading() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        walk = {"b1-0002": (Round((0.5,) * 5000), 1.0)}
        with refused(DiskFull, tmp_path / "bricks.sqlite"):
            store.claims.append_rounds(TARGET.key, walk, owner)
        assert list(store.measurements.results(TARGET.key, ["b1-0001"])) == ["b1-0001"]
        assert store.contents.stats().samples == 1
        with database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        store.claims.append_rounds(TARGET.key, walk, owner)
        assert store.contents.stats().samples == 5001


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    open_with_target(tmp_path).close()
    other = sqlite3.connect(tmp_path / "bricks.sqlite", isolation_level=None)
    assert other.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    other.execute("BEGIN IMMEDIATE")
    try:
        with Store.open(tmp_path, busy_timeout_s=0.05) as store:
            assert store.systems.targets() == [TARGET]  # readers don't wait for writers
            with refused(CacheLocked, tmp_path / "bricks.sqlite"):
                store.systems.save_target(OTHER)
            other.execute("ROLLBACK")
            store.systems.save_target(OTHER)
    finally:
        other.close()


def test_who_waits_for_another_writer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other process ends its transaction as soon as it is waited for."""
    open_with_target(tmp_path).close()
    monkeypatch.setattr(engine, "MOMENT_S", 0.05)
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "bricks.sqlite")]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        Store.open(tmp_path) as store,
    ):
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with ThreadPoolExecutor() as pool:
            saved = pool.submit(store.systems.save_target, OTHER)
            until(lambda: bool(caplog.messages) or saved.done())
            assert not saved.done()
            other.stdin.close()
            saved.result()
        assert OTHER in store.systems.targets()
    (line,) = caplog.messages
    assert "waiting for another process" in line and str(tmp_path) in line


def test_asking_whether_a_cache_is_there_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert not Store.exists(folder)
    assert not Store.exists(str(folder))
    assert not Store.exists("~nobody-here/cache")
    assert not folder.exists()
    folder.mkdir()
    assert not Store.exists(folder)
    Store.open(folder).close()
    assert Store.exists(folder)


def test_a_database_url_is_taken_to_exist() -> None:
    assert Store.exists("postgresql+psycopg://user@nowhere/bricks")


def test_a_place_that_cannot_be_looked_at_is_left_to_opening(tmp_path: Path) -> None:
    location = tmp_path / ("x" * 300)  # longer than file systems allow
    assert Store.exists(location)
    with refused(StoreError, location, "--cache"):
        Store.open(location)
