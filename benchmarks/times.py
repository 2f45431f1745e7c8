"""How long do commands take? Measures whole processes on shipped models.

    .venv/bin/python benchmarks/times.py

Writes docs/times.md. Each command runs in a process of its own, as a user would run it; times are
wall time from the start of the interpreter. Run nothing else meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

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
        f"Synthetic weights are generated at {weights_per_second() / 1e9:.1f} GB/s. To measure this"
        " on your machine:",
        "",
        "    .venv/bin/python benchmarks/times.py",
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def timed(arguments: list[str]) -> float:
    """Wall time in seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run([*BRICKS, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def interrupted() -> float:
    """Seconds from SIGINT in the middle of measuring to the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*BRICKS, "measure", *NINE, "--cache", folder]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(15)
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
