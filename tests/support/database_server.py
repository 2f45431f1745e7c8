"""A PostgreSQL server of the tests' own: on loopback, with a password, gone when they end."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 30
USER = "bricks"


class NoServer(Exception):
    """Why no server can be started here."""


@dataclass(frozen=True)
class Server:
    """Makes databases; ``password`` is in the URL of each."""

    port: int
    password: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str, *, password: str | None = None) -> str:
        """How a database is named as a cache."""
        password = self.password if password is None else password
        return f"postgresql+psycopg://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"bricks{next(self.numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """What a statement returns; as the owner of all databases."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self.password,
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def running() -> Iterator[Server]:
    """A server that runs until the end; raises NoServer where that cannot be.

    It is no child of this process: some tests count those.
    """
    if importlib.util.find_spec("psycopg") is None:
        raise NoServer("the driver is missing: pip install 'psycopg[binary]'")
    programs, owner = _programs(), _owner()
    # Not among the other files of tests: the server's user could not go into that folder.
    folder = Path(tempfile.mkdtemp(prefix="bricks-postgresql-"))
    try:
        password = secrets.token_hex(8)
        (folder / "password").write_text(password)
        if owner is not None:
            shutil.chown(folder, owner)
            shutil.chown(folder / "password", owner)
        _initialise(programs, folder, owner)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # No socket in the file system; speed before safety.
        options = f"-h 127.0.0.1 -p {port} -k '' -F"
        control = [programs / "pg_ctl", "-D", folder / "data", "-w", "-t", str(PATIENCE_S)]
        log = folder / "log"
        done = subprocess.run(
            [*control, "-l", log, "-o", options, "start"],
            user=owner,
            cwd=folder,
            stdout=subprocess.DEVNULL,  # a pipe would not end before the server
            stderr=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise NoServer(f"it does not start: {log.read_text()[-500:] if log.exists() else ''}")
        try:
            yield Server(port, password)
        finally:
            # Waits for nobody's connection.
            stop = [*control, "-m", "fast", "stop"]
            subprocess.run(stop, user=owner, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of the server's programs: on the path, or where Debian puts them."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise NoServer("the server is missing: apt-get install postgresql")
    return found[-1].parent


def _owner() -> str | None:
    """Who must run the server, which refuses to be run by root; None: whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError as exc:
        raise NoServer("root cannot run a server, and there is no user postgres") from exc


def _initialise(programs: Path, folder: Path, owner: str | None) -> None:
    command: list[str | Path] = [programs / "initdb", "-D", folder / "data", "-U", USER]
    command += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"]
    # A language of its own, since its order of letters must not matter.
    for locale in ("en_US.UTF-8", "C.UTF-8"):
        options = ["--encoding=UTF8", f"--locale={locale}"]
        done = subprocess.run(
            [*command, *options], user=owner, capture_output=True, text=True, cwd=folder
        )
        if done.returncode == 0:
            return
        shutil.rmtree(folder / "data", ignore_errors=True)
    raise NoServer(f"initdb failed: {' '.join(done.stderr.split())[-500:]}")
