"""What the memory allocator costs a PyTorch program: steps with its defaults, and with memory kept.

    .venv/bin/python benchmarks/torch_allocator.py resnet44_training bert_training

Each workload of the zoo runs in two processes for each setting, one after the other, with one
thread. Prints milliseconds and page faults of the median of fifteen steps. Run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from bricks.backends import describe
from bricks.sources import function_of
from bricks.zoo import zoo_folder

ROOT = Path(__file__).resolve().parent.parent

SETTINGS = {
    "defaults": "",
    "kept": "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1099511627776",
}
PROCESSES = 2

# Runs where PyTorch is.
_STEPS = """
import resource, statistics, sys, time
import torch
from bricks.backends.torch.entry import program
torch.set_num_threads(1)
torch.set_flush_denormal(True)
made = program(sys.argv[1], sys.argv[2], {})
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    made.step()
found = []
for _ in range(15):
    before, start = faults(), time.perf_counter()
    made.step()
    found.append((time.perf_counter() - start, faults() - before))
seconds, pages = (statistics.median(column) for column in zip(*found))
print(f"{seconds * 1e3:.1f} ms, {pages:.0f} page faults a step")
"""


def main() -> None:
    """Run each workload with each setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("functions", nargs="+", help="Names of the zoo's functions.")
    arguments = parser.parse_args()
    python = describe("torch").python
    for function in arguments.functions:
        for name, tunables in SETTINGS.items():
            environment = {**os.environ, "GLIBC_TUNABLES": tunables, "PYTHONPATH": str(ROOT)}
            for _ in range(PROCESSES):
                command = [
                    str(python),
                    "-c",
                    _STEPS,
                    function_of(f"torch_{function}").word,
                    str(zoo_folder()),
                ]
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                )
                print(f"{function}, {name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
