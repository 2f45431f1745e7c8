"""The program in a portable suite: checks it, and measures in a child process that may die.

Must not know any runtime.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bricks.errors import BricksError
from bricks.suite.runner import run_log
from bricks.suite.runner.options import RunOptions, parsed
from bricks.suite.runner.suite_run import SuiteData, SuiteRun, opened

# First word of the command line of the child process, followed by its seconds.
_WORK = "--work"
# The child may die so often, whatever kills it.
_MOST_DEATHS = 20
_INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Measure the suite that is running; returns the exit status."""
    path, words = Path(sys.argv[0]), list(sys.argv[1:] if words is None else words)
    seconds = float(words[1]) if words[:1] == [_WORK] else None
    options = parsed(words[2:] if seconds is not None else words, path.name)
    try:
        data = SuiteData(path)
        if seconds is not None:
            deadline_s = time.monotonic() + seconds
            work = SuiteRun(data, opened(data, options), options, deadline_s)
            for note in work.notes:
                print(note, flush=True)
            work.run()
            for line in work.summary.lines(work.programs):
                print(line)
            name, out = work.target.system.name, options.out
            print(f"{out}: measured on {name}; bricks cache import {out}")
            return 0
        return _supervise(data, options)
    except BricksError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{path.name}: interrupted; {options.out} has all results so far", file=sys.stderr)
        return _INTERRUPTED


def _supervise(data: SuiteData, options: RunOptions) -> int:
    """Let a child measure; go on without the brick that kills it."""
    end_s = time.monotonic() + 60 * options.minutes
    # Libraries read these variables when they are loaded.
    given: Mapping[str, str] = data.content["environment"]
    threads = "" if options.threads is None else str(options.threads)
    own = {name: threads for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if threads}
    environment = {**os.environ, **given, **own}
    for _ in range(_MOST_DEATHS):
        left_s = max(0.0, end_s - time.monotonic())
        words = [sys.executable, str(data.path), _WORK, str(left_s), *options.words()]
        status = subprocess.call(words, env=environment)
        if status >= 0:
            return status
        if not _note_death(options.out, -status):
            break
    print(f"{data.path.name}: ended ({_named(-status)}); {options.out} has what it measured before",
          file=sys.stderr)  # fmt: skip
    return 1


def _note_death(out: Path, number: int) -> bool:
    """Note that a brick killed the child; whether there was one that had just begun."""
    begun = None
    for raw in out.read_bytes().splitlines(keepends=True) if out.exists() else ():
        kind, data = run_log.read(raw) or ("", None)
        if kind == run_log.BEGUN:
            begun = data
        elif kind == run_log.DONE:
            begun = None
    if begun is None:
        return False
    reason = f"it ended the process ({_named(number)})"
    with out.open("ab") as file:
        file.write(run_log.written(run_log.FAILURE, {"brick": begun, "reason": reason}))
        file.write(run_log.written(run_log.DONE, begun))
    print(f"{begun}: {reason}", flush=True)
    return True


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
