"""A team's cache on PostgreSQL: what commands do with it, and what they say when they cannot."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import PATIENCE_S, CommandResult, Here, bricks, chain, ended, started, until
from database_server import Server
from factories import save
from refusals import refused
from sqlalchemy.exc import DBAPIError
from store_examples import (
    keys_up_to,
    make_decomposition,
    make_target,
    measure,
    open_with_target,
)

from bricks.cli import main
from bricks.errors import StoreError
from bricks.samples.measurement import Round
from bricks.store import Owner, Store
from bricks.store.database import Database
from bricks.store.views import BUSY_TIMEOUT_S

PASSWORD = "hunter2-never-shown"


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.new_database()


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Commands in this process, on the server's cache."""

    def run(*arguments: object, cache: str = url) -> CommandResult:
        capsys.readouterr()
        status = main.run([*map(str, arguments), "--cache", cache])
        captured = capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)

    return run


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "models"
    folder.mkdir()
    chains = {"one": ("Relu", "Neg", "Tanh"), "two": ("Exp", "Relu")}
    return [save(chain(*each), folder, f"{name}.onnx") for name, each in chains.items()]


def counts(server: Server, url: str) -> tuple[int, int]:
    """Measured bricks, and claims that somebody holds."""
    database = url.rpartition("/")[2]
    try:
        ((done, claimed),) = server.run(
            "SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'open'"
            " AND owner_token <> '') FROM measurements WHERE brick_key LIKE 'b1-%'",
            database=database,
        )
    except Exception as exc:  # the tables are not made yet
        if "does not exist" not in str(exc):
            raise
        return 0, 0
    return done, claimed


def test_everything_goes_as_in_a_folder(
    run: Callable[..., CommandResult], here: Here, models: list[Path], tmp_path: Path
) -> None:
    fake = ("--runtime", "fake")
    first = run("measure", *models, *fake, "--json").json
    assert first["new_bricks"] == first["bricks"] > 0
    assert run("measure", *models, *fake, "--json").json["new_bricks"] == 0
    rows = run("predict", *models, "--no-measure", *fake, "--json").json["models"]
    assert [row["error"] for row in rows] == [None] * 2
    assert run("compare", *models, *fake).status == 0
    stats = run("cache", "stats", "--json").json
    assert stats["systems"] == 1 and stats["measurements"] > first["bricks"]
    (known,) = run("systems", "--json").json["systems"]
    assert run("systems", "set", known["key"], "--name", "desk", "--price", 0.5).status == 0
    assert "desk" in run("systems").out
    assert run("advise", *models, "--slo", "1s", *fake).status == 0
    assert run("cache", "verify").status == 0

    # And back and forth between both kinds of database.
    there, back = tmp_path / "there.jsonl", tmp_path / "back.jsonl"
    assert run("cache", "export", there).status == 0
    assert here("cache", "import", there, runtime=None).status == 0
    assert here("measure", *models, "--json").json["new_bricks"] == 0
    assert here("cache", "export", back, runtime=None).status == 0
    assert run("cache", "import", back).out.endswith("were known\n")
    run("cache", "export", there)
    assert there.read_bytes() == back.read_bytes()


@pytest.mark.slow
def test_two_processes_share_the_work_of_one_system(
    postgresql: Server, url: str, models: list[Path]
) -> None:
    words = ("--json", "--runtime", "fake", "--cache", url)
    pace = {"BRICKS_FAKE_PACE": "0.001"}
    with (
        started("measure", *models, *words, **pace) as one,
        started("measure", *reversed(models), *words, **pace) as two,
    ):
        done = [ended(one), ended(two)]
    assert [(d.status, d.err) for d in done] == [(0, "")] * 2
    assert sum(d.json["new_bricks"] for d in done) == done[0].json["bricks"]
    assert counts(postgresql, url) == (done[0].json["bricks"], 0)


def test_who_adds_rounds_and_who_wants_to_claim_never_wait_for_each_other(url: str) -> None:
    target, keys, mine, other = make_target(), keys_up_to(200), Owner.current(), Owner.current()
    errors: list[Exception] = []
    adding = threading.Event()

    def claim() -> None:
        try:
            with Store.open(url) as store:
                while not adding.is_set():
                    assert store.claims.claim(target.key, keys, other) == []
        except Exception as exc:  # looked at below
            errors.append(exc)

    with open_with_target(url, target) as store:
        store.claims.claim(target.key, keys, mine)
        thread = threading.Thread(target=claim)
        thread.start()
        try:
            for number in range(30):
                some = keys[100 + number : 110 + number]
                walk = {key: (Round((0.5,)), 1.0) for key in some}
                store.claims.append_rounds(target.key, walk, mine)
        finally:
            adding.set()
            thread.join()
    assert errors == []


@pytest.mark.slow
def test_what_a_killed_process_held_comes_free(
    postgresql: Server, url: str, models: list[Path]
) -> None:
    words = ("--json", "--runtime", "fake", "--cache", url)
    with started("measure", *models, *words, BRICKS_FAKE_PACE="0.002") as killed:
        until(lambda: counts(postgresql, url)[1])
        killed.kill()
        killed.wait(timeout=PATIENCE_S)
    before, claimed = counts(postgresql, url)
    assert claimed
    done = bricks("measure", *models, *words)
    assert (done.status, done.err) == (0, "")
    assert done.json["new_bricks"] == done.json["bricks"] - before
    assert counts(postgresql, url) == (done.json["bricks"], 0)


def test_a_server_that_restarts_in_between_is_reached_again(url: str, postgresql: Server) -> None:
    target = make_target()
    with open_with_target(url, target) as store:
        measure(store, target, ["b1-0001"])
        name = url.rpartition("/")[2]
        ended = postgresql.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )
        assert ended == [(True,)]
        assert list(store.measurements.results(target.key, ["b1-0001"])) == ["b1-0001"]


def test_a_read_that_fails_is_one_line(
    run: Callable[..., CommandResult], url: str, postgresql: Server
) -> None:
    """Not the error of the driver, which has the statement and some links in further lines."""
    target, name = make_target(), url.rpartition("/")[2]
    with open_with_target(url, target) as store:
        measure(store, target, ["b1-0001"])
        postgresql.run("DROP TABLE watched, rounds", database=name)
        with refused(StoreError, "watched") as caught:
            store.measurements.watched(target.key)
        assert isinstance(caught.value.__cause__, DBAPIError)
        with refused(StoreError, "rounds"):
            store.measurements.results(target.key, ["b1-0001"])
    done = run("cache", "stats")
    assert done.status == 1
    assert "cannot be read or written" in done.complaint
    assert postgresql.password not in done.out + done.err


def test_a_reader_sees_one_moment(url: str) -> None:
    """Rounds that come while a measurement is read must not look like damage."""
    target = make_target()
    with open_with_target(url, target) as store, Store.open(url) as other:
        measure(store, target, ["b1-0001"])
        database = Database.open(url, busy_timeout_s=BUSY_TIMEOUT_S, make=False)
        with closing(database), database.reading() as connection:
            before = connection.exec_driver_sql("SELECT count(*) FROM rounds").scalar_one()
            other.plans.save(make_decomposition(), target.key)
            measure(other, target, ["b1-0002"])
            assert connection.exec_driver_sql("SELECT count(*) FROM rounds").scalar_one() == before
            assert connection.exec_driver_sql("SELECT count(*) FROM bricks").scalar_one() == 0


def test_who_may_only_read_can_look_and_is_told_why_not_more(
    run: Callable[..., CommandResult], url: str, postgresql: Server, models: list[Path]
) -> None:
    assert run("measure", models[0], "--runtime", "fake").status == 0
    name = url.rpartition("/")[2]
    postgresql.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert run("predict", models[0], "--runtime", "fake").status == 0
    refused = run("measure", models[1], "--runtime", "fake")
    assert refused.status == 1
    assert "cannot be written, the server only lets read" in refused.complaint


def test_what_cannot_be_reached_is_one_line_without_the_password(
    run: Callable[..., CommandResult], postgresql: Server
) -> None:
    with socket.socket() as bound:  # bound, and not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        caches = {
            "Connection refused": f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:{port}/bricks",
            "password authentication": postgresql.url("postgres", password=PASSWORD),
            'database "nowhere"': postgresql.url("nowhere"),
        }
        for command in (("cache", "stats"), ("measure", "squeezenet"), ("systems",)):
            for text, cache in caches.items():
                done = run(*command, cache=cache)
                assert done.status == 1, command
                assert "cannot be reached: " in done.complaint and text in done.complaint, command
                assert PASSWORD not in done.out + done.err
                assert postgresql.password not in done.out + done.err


def test_no_form_of_url_shows_its_password(
    run: Callable[..., CommandResult], caplog: pytest.LogCaptureFixture
) -> None:
    for form in (
        "postgresql+psycopg://me:{}@[::1",
        "postgresql+psycopg://me:{}@127.0.0.1:port/db",
        "mysql://me:{}@127.0.0.1/db",
        "postgresql://127.0.0.1:1/db?user=me&password={}",
        "postgres://127.0.0.1:1/db?user=me&sslpassword={}",
        "postgresql+psycopg://127.0.0.1:1/db?nonsense={}",
    ):
        with caplog.at_level(logging.DEBUG):
            done = run("cache", "stats", cache=form.format(PASSWORD))
        assert done.status == 1, form
        assert done.complaint.startswith(("the cache", "a cache")), form
        assert PASSWORD not in done.out + done.err + caplog.text, form


def test_nothing_that_is_printed_shows_the_password(
    run: Callable[..., CommandResult],
    url: str,
    postgresql: Server,
    models: list[Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands: list[tuple[Any, ...]] = [
        ("measure", models[0], "--runtime", "fake"),
        ("cache", "stats"),
        ("cache", "stats", "--json"),
        ("cache", "verify", "--json"),
        ("cache", "export", tmp_path / "out.jsonl"),
        ("systems", "diff", "nowhere"),
        ("measure", "nothing.onnx"),
    ]
    with caplog.at_level(logging.DEBUG):
        for command in commands:
            done = run(*command)
            assert postgresql.password not in done.out + done.err + caplog.text
    assert postgresql.password not in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    monkeypatch.setenv("BRICKS_CACHE", url)
    for words in (["--help"], ["measure", "--help"], ["cache", "stats"]):
        assert main.run(words) == 0
        printed = capsys.readouterr()
        assert printed.out.strip() and postgresql.password not in printed.out + printed.err, words


def test_an_empty_database_is_not_filled_by_looking_nor_one_of_something_else_by_measuring(
    run: Callable[..., CommandResult], url: str, postgresql: Server
) -> None:
    name = url.rpartition("/")[2]
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    done = run("cache", "stats")
    assert (done.status, "is empty" in done.complaint) == (1, True)
    assert postgresql.run(tables, database=name) == []
    postgresql.run("CREATE TABLE customers (id integer)", database=name)
    done = run("measure", "squeezenet", "--runtime", "fake")
    assert done.status == 1
    assert "is not a bricks cache (a database of something else)" in done.complaint
    assert postgresql.run(tables, database=name) == [("customers",)]


def test_without_a_driver_it_is_said_what_to_install(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with refused(StoreError, "pip install 'onnx-bricks[postgresql]'"):
        Store.open(url)
