"""How long do commands take? Measures whole processes on shipped models.

    .venv/bin/python benchmarks/times.py

Writes docs/times.md. Each command runs in a process of its own, as a user would run it; times are
wall time from the start of the interpreter. Run nothing else meanwhile.
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
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from search_space import architecture

from bricks import Bench
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "times.md"
BRICKS = [sys.executable, "-m", "bricks.cli.main"]
NINE = (
    "alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


# How often a command is timed beside the same one without published measurements.
TURNS = 9
USERS, LOAD_S = 50, 60.0


def main() -> None:
    """Time everything, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        cache = ["--cache", folder, "--threads", "1"]
        rows = [
            ("`bricks --help`", timed(["--help"])),
            ("`bricks decompose NINE`, nothing cached", timed(["decompose", *NINE, *cache])),
            ("the same again", timed(["decompose", *NINE, *cache])),
            ("`bricks measure NINE`, nothing measured", timed(["measure", *NINE, *cache])),
            ("the same again", timed(["measure", *NINE, *cache])),
            ("`bricks predict resnet50`, measured before", timed(["predict", "resnet50", *cache])),
            (
                "`bricks decompose NINE --verify`",
                timed(["decompose", *NINE, "--verify", *cache]),
            ),
        ]
        beside = beside_published(cache)
    rows.append(("Ctrl-C during `bricks measure NINE`, until it has ended", interrupted()))
    with tempfile.TemporaryDirectory() as folder, Bench(folder) as bench:
        system = bench.target.system.name
    lines = [
        "# How long commands take",
        "",
        f"Written by `benchmarks/times.py` on {datetime.now(UTC).date()}, on {system}. Times are",
        "wall time of whole processes, from the start of the interpreter; NINE stands for "
        + ", ".join(NINE)
        + ".",
        "",
        "| what | time |",
        "|---|--:|",
        *(f"| {what} | {seconds:.2f} s |" for what, seconds in rows),
        "",
        "## Answers from published measurements",
        "",
        "| what | time |",
        "|---|--:|",
        *beside,
        *(f"| {what} | {seconds:.2f} s |" for what, seconds in advised()),
        served(),
        "",
        f"With and without: medians of {TURNS} processes each, in turn. The server had an empty",
        "cache and the published files; its users sent the next request as soon as they had an",
        "answer.",
        "",
        f"Synthetic weights are generated at {weights_per_second() / 1e9:.1f} GB/s. To measure this"
        " on your machine:",
        "",
        "    .venv/bin/python benchmarks/times.py",
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def timed(arguments: list[str], folder: str | None = None, **environment: str) -> float:
    """Wall time in seconds of a command that must succeed, started in ``folder``."""
    started = time.perf_counter()
    subprocess.run(
        [*BRICKS, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder,
        env={**os.environ, **environment},
    )  # fmt: skip
    return time.perf_counter() - started


def beside_published(cache: list[str]) -> list[str]:
    """Rows of commands with and without published measurements beside what ``cache`` has."""
    rows = []
    for words in (["--help"], ["predict", "resnet50", *cache]):
        found: tuple[list[float], list[float]] = [], []
        for _ in range(TURNS):
            found[0].append(timed(words))
            found[1].append(timed(words, BRICKS_PUBLISHED=os.devnull))
        with_s, without_s = (sorted(times)[TURNS // 2] for times in found)
        what = "predict resnet50`, measured before" if len(words) > 1 else "--help`"
        rows.append(f"| `bricks {what}, with and without | {with_s:.3f} and {without_s:.3f} s |")
    return rows


def advised() -> Iterator[tuple[str, float]]:
    """How long advice takes in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield "`bricks advise resnet50` in an empty folder", _advised("resnet50", folder)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as models:
        unseen = Path(models, "unseen.onnx")
        unseen.write_bytes(architecture(0).SerializeToString())
        what = "`bricks advise` of a model never seen (a random CNN), in an empty folder"
        yield what, _advised(str(unseen), folder)


def _advised(model: str, folder: str) -> float:
    return timed(["advise", model, "--slo", "1s"], folder)


def served() -> str:
    """The row of users who ask a server for an answer that is there."""
    with tempfile.TemporaryDirectory() as cache, server(cache) as address:
        digest = uploaded(address, architecture(0).SerializeToString())
        paths = (f"/models/{digest}", f"/api/models/{digest}")
        waited: list[float] = []
        users = [threading.Thread(target=ask, args=(address, paths, waited)) for _ in range(USERS)]
        for user in users:
            user.start()
        for user in users:
            user.join()
    waited.sort()
    most_ms = 1e3 * waited[len(waited) * 95 // 100]
    what = f"`bricks web`, {USERS} users for a minute, {len(waited)} answers: 95th percentile"
    return f"| {what} | {most_ms:.0f} ms |"


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
            raise SystemExit(f"the server could not answer: {found}")
        time.sleep(0.1)


def ask(address: str, paths: tuple[str, ...], waited: list[float]) -> None:
    """Ask one question after the other; ``waited`` gets the seconds of each."""
    connection = http.client.HTTPConnection(address, timeout=60)
    until, number = time.monotonic() + LOAD_S, 0
    while time.monotonic() < until:
        started = time.monotonic()
        connection.request("GET", paths[number % len(paths)])
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}")
        waited.append(time.monotonic() - started)
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
        raise SystemExit(f"measuring ended with {status} before it could be interrupted")
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


if __name__ == "__main__":
    main()
