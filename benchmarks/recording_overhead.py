"""What recording and measuring cost a PyTorch step: while they run, and after.

Writes the figures of docs/levels.md and benchmarks/results/recording_overhead.json.

    .venv/bin/python benchmarks/recording_overhead.py

Each workload runs in processes that take turns: a plain loop, and the same loop after a step was
recorded, both with one thread. Every process runs thirty steps; ``off`` is the ratio of the medians
over the processes, ``on`` a step that is recorded over the plain loop's. What a measuring process
adds to a step is the way in which it calls it, timed in turn with the plain loop. Run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from page_parts import put

from bricks.backends import describe
from bricks.sources import function_of
from bricks.system import fingerprint
from bricks.zoo import zoo_folder

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "recording_overhead.json"
PAGE = ROOT / "docs" / "levels.md"

WORKLOADS = ("resnet44_training", "lstm_training", "dlrm_training", "mobilenet_v3")
PROCESSES = 3

# Memory is kept, as for measuring: else each process takes another time by its page faults.
KEPT = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1099511627776"

# Runs where PyTorch is: milliseconds of a plain step, of one that a measuring process calls, and
# of one that is recorded (if one was).
_STEPS = """
import json, statistics, sys, time
import torch
from bricks.backends.torch.entry import program
from bricks.backends.torch.call_recorder import CallRecorder
torch.set_num_threads(1)
torch.set_flush_denormal(True)
made = program(sys.argv[1], sys.argv[2], {})
module, inputs, loss, optimizer = made.module, made.inputs, made.loss, made.optimizer

def plain():
    if optimizer is None:
        with torch.no_grad():
            return module(*inputs)
    optimizer.zero_grad(set_to_none=True)
    loss(module(*inputs)).backward()
    optimizer.step()

def recorded():
    recorder = CallRecorder(made)
    with recorder, recorder.watching():
        result = made.step(recorder.mark)
        recorder.finish()

def timed(step):
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)

for _ in range(3):
    plain()
on = [timed(recorded) for _ in range(5)] if sys.argv[3] == "recorded" else []
turns = [(timed(plain), timed(made.step)) for _ in range(30)]
plain_ms, called_ms = map(statistics.median, zip(*turns))
print(json.dumps([plain_ms, called_ms, statistics.median(on) if on else None]))
"""


def main(words: Sequence[str] | None = None) -> None:
    """Time every workload, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--raw", type=Path, default=RAW)
    arguments = parser.parse_args(words)
    facts: dict[str, Any] = {
        "system": fingerprint().name,
        "date": datetime.now(UTC).date().isoformat(),
        "workloads": {name: _measured(name) for name in WORKLOADS},
    }
    arguments.raw.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    put(arguments.page, __file__, {"overhead": "\n".join(_table(facts))})


def _measured(name: str) -> dict[str, float]:
    code = function_of(f"torch_{name}").word
    never: list[list[float]] = []
    after: list[list[float]] = []
    for _ in range(PROCESSES):
        never.append(_process(code, "never"))
        after.append(_process(code, "recorded"))
    plain, called, _ = zip(*never, strict=True)
    off, _, on = zip(*after, strict=True)
    plain_ms = statistics.median(plain)
    found = {
        "plain_ms": plain_ms,
        "off": statistics.median(off) / plain_ms,
        "called": statistics.median(c / p for c, p in zip(called, plain, strict=True)),
        "on": statistics.median(on) / plain_ms,
        # How far two medians of the plain loop alone lie apart: no smaller effect can be seen.
        "noise": statistics.median(plain[::2]) / statistics.median(plain[1::2]) - 1,
    }
    print(name, found, flush=True)
    return {key: float(f"{value:.4g}") for key, value in found.items()}


def _process(code: str, what: str) -> list[float]:
    environment = {**os.environ, "GLIBC_TUNABLES": KEPT, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [describe("torch").python, "-c", _STEPS, code, str(zoo_folder()), what],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[float] = json.loads(done.stdout)
    return found


def _table(facts: Mapping[str, Any]) -> list[str]:
    return [
        f"| {facts['system']}, one thread | step | recorded before | called by a measuring process"
        " | while it is recorded | noise |",
        "|---|--:|--:|--:|--:|--:|",
        *(
            f"| {name} | {row['plain_ms']:.3g} ms | {row['off'] - 1:+.1%}"
            f" | {row['called'] - 1:+.1%} | × {row['on']:.1f} | {abs(row['noise']):.1%} |"
            for name, row in facts["workloads"].items()
        ),
    ]


if __name__ == "__main__":
    main()
