"""Running the command line in tests: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from factories import model, node, save, value

from bricks.cli import main

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(Path(__file__).with_name("bricks_command.py"))]
# No test takes that long; one that hangs ends.
PATIENCE_S = 300.0


@dataclass(frozen=True)
class CommandResult:
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on standard error, without the program's name."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("bricks: "), self.err
        return lines[0].removeprefix("bricks: ")


class Here:
    """Runs commands in this process, on one cache, with the fake runtime unless told otherwise."""

    def __init__(self, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cache = cache
        self._capsys = capsys

    def __call__(self, *arguments: object, runtime: str | None = "fake") -> CommandResult:
        words = [str(a) for a in arguments]
        words += ["--cache", str(self.cache)]
        words += ["--runtime", runtime] if runtime else []
        return self.plain(*words)

    def plain(self, *arguments: object) -> CommandResult:
        self._capsys.readouterr()
        status = main.run([str(a) for a in arguments])
        captured = self._capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, without what others may have set for bricks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BRICKS_")}
    paths = [str(ROOT), kept.get("PYTHONPATH", "")]
    kept |= {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    return {**kept, "BRICKS_PUBLISHED": os.devnull, **changes}


@contextmanager
def started(
    *arguments: object, command: Sequence[str] = COMMAND, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own; killed at the end if it still runs."""
    # Where the tests run in the background, Ctrl-C is ignored, and children would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> CommandResult:
    """What a started command prints until it ends."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return CommandResult(process.returncode, out, err)


def bricks(*arguments: object, **variables: str) -> CommandResult:
    """A command as a process of its own, from start to end."""
    with started(*arguments, **variables) as process:
        return ended(process)


def until(condition: Callable[[], Any]) -> Any:
    """Wait for ``condition``, and return what it yields."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def workers(pid: int) -> list[psutil.Process]:
    """The worker processes that process ``pid`` has started."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def gone(processes: list[psutil.Process]) -> bool:
    """Whether all have ended; what nobody has waited for counts as ended."""
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def rounds(cache: Path, keys: str = "b1-") -> dict[str, list[str]]:
    """The samples of each round kept so far, by key of the brick."""
    if not (cache / "bricks.sqlite").exists():
        return {}
    with sqlite3.connect(cache / "bricks.sqlite", timeout=30) as connection:
        try:
            rows = connection.execute(
                "SELECT brick_key, samples FROM rounds JOIN measurements"
                " ON measurements.id = measurement_id WHERE brick_key LIKE ? ORDER BY number",
                (f"{keys}%",),
            ).fetchall()
        except sqlite3.OperationalError:  # the tables are not made yet
            rows = []
    connection.close()
    kept: dict[str, list[str]] = {}
    for key, samples in rows:
        kept.setdefault(key, []).append(samples)
    return kept


def chain(*operators: str, width: int = 64) -> onnx.ModelProto:
    """Operators of one input in a row."""
    names = ["x", *(f"v{i}" for i in range(1, len(operators))), "y"]
    nodes = [node(op, [a], [b]) for op, a, b in zip(operators, names, names[1:], strict=False)]
    shape = [1, width]
    return model(nodes, [value("x", shape)], [value("y", shape)])


# Operators of one element each, which runtimes do not fuse.
ELEMENTWISE = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf", "Floor", "Ceil", "Sin", "Cos",
    "Softplus", "Softsign", "Elu", "Selu", "Round", "Reciprocal", "Sign", "Log",
)  # fmt: skip


def disjoint_models(folder: Path, count: int) -> list[Path]:
    """Files of models of twenty bricks each, of which any two share none."""
    return [save(chain(*ELEMENTWISE, width=64 + i), folder, f"{i}.onnx") for i in range(count)]
