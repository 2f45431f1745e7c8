"""How long do commands take? Measures whole processes on shipped models.

    .venv/bin/python -m benchmarks times --again

Each command runs in a process of its own, as a user would run it; times are wall time from the
start of the interpreter. Run nothing else meanwhile.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import layers
from benchmarks.markdown import table
from benchmarks.ratios import digits
from benchmarks.study import Benchmark, Results, Run
from bricks import BricksError
from bricks.graph.synthesis import Pool
from bricks.graph.types import TensorType

BRICKS = [sys.executable, "-m", "bricks.cli.main"]
NINE = (
    "alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip

# How often a command is timed in turn with the same one without published measurements.
TURNS = 9
USERS, LOAD_S = 50, 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """All commands, one after another, on one cache."""

    models: int = len(NINE)


@dataclass(frozen=True, slots=True)
class Timed:
    """A command, as the page names it, and its wall time."""

    command: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedTwice:
    """Medians of a command's wall time with published measurements and without."""

    command: str
    with_s: float
    without_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """Wall times of commands, and what a server answers to many users at once.

    ``answers`` came in ``LOAD_S``, 95 % of them within ``p95_s``.
    """

    case: Case
    commands: tuple[Timed, ...]
    twice: tuple[TimedTwice, ...]
    advised: tuple[Timed, ...]
    answers: int
    p95_s: float
    weight_bytes_per_s: float


def cases() -> list[Case]:
    """The one session."""
    return [Case()]


def run(case: Case, run: Run) -> Row:
    """Time everything."""
    with tempfile.TemporaryDirectory() as folder:
        cache = ["--cache", folder, "--threads", "1"]
        commands = [
            Timed("`bricks --help`", timed("--help")),
            Timed("`bricks decompose NINE`, nothing cached", timed("decompose", *NINE, *cache)),
            Timed("the same again", timed("decompose", *NINE, *cache)),
            Timed("`bricks measure NINE`, nothing measured", timed("measure", *NINE, *cache)),
            Timed("the same again", timed("measure", *NINE, *cache)),
            Timed("`bricks predict resnet50`, measured before",
                  timed("predict", "resnet50", *cache)),
            Timed("`bricks decompose NINE --verify`",
                  timed("decompose", *NINE, "--verify", *cache)),
        ]  # fmt: skip
        twice = (
            _timed_twice("`bricks --help`", "--help"),
            _timed_twice("`bricks predict resnet50`, measured before", "predict", "resnet50",
                         *cache),
        )  # fmt: skip
    commands.append(Timed("Ctrl-C during `bricks measure NINE`, until it has ended", interrupted()))
    waits_s = sorted(served())
    return Row(
        case, tuple(commands), twice, tuple(advised()), len(waits_s),
        digits(waits_s[len(waits_s) * 95 // 100], 4), digits(weights_per_second(), 4),
    )  # fmt: skip


def timed(*arguments: str, folder: str | None = None, **environment: str) -> float:
    """Wall time in seconds of a command that must succeed, started in ``folder``."""
    began_s = time.perf_counter()
    subprocess.run(
        [*BRICKS, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder,
        env={**os.environ, **environment},
    )  # fmt: skip
    return digits(time.perf_counter() - began_s, 4)


def _timed_twice(command: str, *words: str) -> TimedTwice:
    """A command with and without published measurements, in turn."""
    pairs = [(timed(*words), timed(*words, BRICKS_PUBLISHED=os.devnull)) for _ in range(TURNS)]
    with_s, without_s = (sorted(times)[TURNS // 2] for times in zip(*pairs, strict=True))
    return TimedTwice(command, with_s, without_s)


def advised() -> Iterator[Timed]:
    """Advice in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield Timed("`bricks advise resnet50` in an empty folder", _advised("resnet50", folder))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as models:
        path = Path(models, "unseen.onnx")
        path.write_bytes(_unseen())
        command = "`bricks advise` of a model never seen (a residual network), in an empty folder"
        yield Timed(command, _advised(str(path), folder))


def _advised(model: str, folder: str) -> float:
    return timed("advise", model, "--slo", "1s", folder=folder)


def _unseen() -> bytes:
    """A model that nobody has measured, without its weights."""
    return bytes(layers(100, 200).SerializeToString())


def served() -> list[float]:
    """Seconds that users wait who ask a server for an answer that is there."""
    with tempfile.TemporaryDirectory() as cache, server(cache) as address:
        digest = uploaded(address, _unseen())
        paths = (f"/models/{digest}", f"/api/models/{digest}")
        waits_s: list[float] = []
        users = [threading.Thread(target=ask, args=(address, paths, waits_s)) for _ in range(USERS)]
        for user in users:
            user.start()
        for user in users:
            user.join()
    return waits_s


@contextmanager
def server(cache: str) -> Iterator[str]:
    """The address of a server with an empty cache."""
    process = subprocess.Popen(
        [*BRICKS, "web", "--port", "0", "--cache", cache], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://" in line)
        yield line.partition("http://")[2].split()[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(timeout=60)


def uploaded(address: str, content: bytes) -> str:
    """The digest of a model, when its answers are there."""
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {"Content-Type": "application/octet-stream"}
    connection.request("POST", "/api/models?name=unseen", content, headers)
    job = json.loads(connection.getresponse().read())["job"]
    while True:
        connection.request("GET", f"/api/jobs/{job}")
        found = json.loads(connection.getresponse().read())
        if found["state"] == "done":
            return str(found["digest"])
        if found["state"] == "failed":
            raise BricksError(f"the server could not answer: {found}")
        time.sleep(0.1)


def ask(address: str, paths: Sequence[str], waits_s: list[float]) -> None:
    """Ask one question after the other; ``waits_s`` gets the seconds of each."""
    connection = http.client.HTTPConnection(address, timeout=60)
    until, number = time.monotonic() + LOAD_S, 0
    while time.monotonic() < until:
        started = time.monotonic()
        connection.request("GET", paths[number % len(paths)])
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise BricksError(f"the server answered {answer.status}")
        waits_s.append(time.monotonic() - started)
        number += 1


def interrupted() -> float:
    """Seconds from SIGINT in the middle of measuring to the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*BRICKS, "measure", *NINE, "--cache", folder]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(4)  # the quickest machine so far takes nine
        started = time.perf_counter()
        os.kill(process.pid, signal.SIGINT)
        status = process.wait(timeout=60)
        took_s = time.perf_counter() - started
    if status != 130:
        raise BricksError(f"measuring ended with {status} before it could be interrupted")
    return took_s


def weights_per_second() -> float:
    """Bytes of float32 weights generated per second: median of five arrays of 256 MiB."""
    pool = Pool(0)
    rates = []
    for name in "abcde":
        started = time.perf_counter()
        array = pool.weight(name, TensorType("FLOAT", (8192, 8192)))
        rates.append(array.nbytes / (time.perf_counter() - started))
    return sorted(rates)[2]


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables of commands and of answers from published measurements."""
    (row,) = results.rows
    head = ["what", "time"]
    twice = [
        [f"{each.command}, with and without", f"{each.with_s:.3f} and {each.without_s:.3f} s"]
        for each in row.twice
    ]
    advised = [[each.command, f"{each.seconds:.2f} s"] for each in row.advised]
    web = (
        f"`bricks web`, {USERS} users for a minute, {row.answers} answers: 95th percentile",
        f"{1e3 * row.p95_s:.0f} ms",
    )
    commands = ([each.command, f"{each.seconds:.2f} s"] for each in row.commands)
    return {
        "date": results.about.date,
        "system": results.about.system,
        "commands": table(head, commands),
        "published": table(head, [*twice, *advised, web]),
        "weights": f"{row.weight_bytes_per_s / 1e9:.1f} GB/s",
    }


BENCHMARKS = (Benchmark("times", "times.md", Row, cases, run, parts),)
