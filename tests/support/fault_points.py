"""Runs a command that is killed at a fault point: a place where what is kept could be left half.

A fault point is a moment just before or just after something that outlives it: a transaction of
the cache, a request to the worker. Points are numbered in the order in which a run passes them, so
that tests can kill a run at each of them, in place of moments drawn at random.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from commands import CommandResult, environment
from fork_server import ForkServer

PARENT, WORKER = "parent", "worker"


@dataclass(frozen=True)
class Run:
    """How a run ended: its exit status (negative: the signal), and the points that it passed."""

    done: CommandResult
    points: tuple[str, ...]


def run_until(
    server: ForkServer, *words: object, at: int | None = None, victim: str = PARENT
) -> Run:
    """Run a command; at its point number ``at``, the ``victim`` is killed."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        out, err, points = (Path(name) / part for part in ("out", "err", "points"))
        fds = {n: stack.enter_context(f.open("w")).fileno() for n, f in ((1, out), (2, err))}
        number = "" if at is None else str(at)
        process = server.start(
            "fault_points:run", ["bricks", name, number, victim, *map(str, words)],
            environment(), fds,
        )  # fmt: skip
        status = process.wait()
        return Run(
            CommandResult(status, out.read_text(), err.read_text()),
            tuple(points.read_text().splitlines()),
        )


def run() -> int:
    """The command itself, in a process of its own."""
    from sqlalchemy.engine.default import DefaultDialect

    from bricks.cli import main
    from bricks.measure import timing_lock
    from bricks.measure.worker_process import WorkerProcess

    _, folder, at, victim, *words = sys.argv
    timing_lock.FOLDERS = (Path(folder),)  # these runs need not wait for each other
    with (Path(folder) / "points").open("w") as points:
        passed = _killing(points, at, victim)
        _around(DefaultDialect, "do_commit", passed, _Writes())
        _around(WorkerProcess, "send", passed, _request)
        return main.run(words)


def _killing(points: IO[str], at: str, victim: str) -> Callable[[str], None]:
    """What is called at each point: notes it, and kills whom it must."""
    numbers = itertools.count()

    def passed(name: str) -> None:
        points.write(f"{name}\n")
        points.flush()
        if str(next(numbers)) == at:
            if victim == PARENT:
                os.kill(os.getpid(), signal.SIGKILL)
            for child in psutil.Process().children(recursive=True):
                child.kill()

    return passed


def _around(
    owner: Any, method: str, passed: Callable[[str], None], name: Callable[..., str | None]
) -> None:
    """Have a point before and after each call of a method that ``name`` has a name for."""
    original = getattr(owner, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        what = name(*args)
        if what is not None:
            passed(f"before {what}")
        result = original(*args, **kwargs)
        if what is not None:
            passed(f"after {what}")
        return result

    setattr(owner, method, call)


class _Writes:
    """Names transactions that change the cache: others leave nothing behind."""

    def __init__(self) -> None:
        self._changes: dict[int, int] = {}

    def __call__(self, _dialect: Any, connection: Any) -> str | None:
        driver = connection.driver_connection
        before = self._changes.get(id(driver), 0)
        self._changes[id(driver)] = driver.total_changes
        return "a transaction" if driver.total_changes > before else None


def _request(_process: Any, line: bytes, _timeout_s: float) -> str:
    return f"the request {json.loads(line)['op']}"
