"""What other processes do with a cache: each function is one of them, and says how far it is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from commands import environment
from fork_server import ForkedProcess, ForkServer
from store_examples import keys_up_to

from bricks.samples.measurement import Round
from bricks.store import Owner, Store


@dataclass(frozen=True)
class Process:
    """A process that runs one of the functions below, and talks in lines."""

    fork: ForkedProcess
    to: IO[str]
    said: IO[str]

    def go_on(self) -> None:
        self.to.write("\n")
        self.to.flush()

    def says(self, end: str) -> list[str]:
        """The lines that it says before ``end``."""
        lines: list[str] = []
        for line in self.said:
            if line.strip() == end:
                return lines
            lines.append(line.strip())
        raise AssertionError(f"the process ended before it said {end!r}")

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.fork.kill()
        self.fork.wait(60)


@contextmanager
def started(server: ForkServer, count: int, does: str, *words: object) -> Iterator[list[Process]]:
    """Processes that are ready; however the test ends, they end too."""
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
            arguments = [does, *map(str, words)]
            fds = {0: theirs_in, 1: theirs_out, 2: 2}
            fork = server.start(f"store_processes:{does}", arguments, environment(), fds)
            for fd in (theirs_in, theirs_out):
                os.close(fd)
            to = stack.enter_context(os.fdopen(ours_in, "w"))
            said = stack.enter_context(os.fdopen(ours_out))
            processes.append(Process(fork, to, said))
            stack.callback(processes[-1].kill)
        for process in processes:
            process.says("ready")
        yield processes


def _say(word: str) -> None:
    print(word, flush=True)


def _walk(keys: Sequence[str], *samples: float, wall_s: float) -> dict[str, tuple[Round, float]]:
    return {key: (Round(samples), wall_s) for key in keys}


def open_it() -> None:
    """Open a cache when told to, which may not be there yet."""
    _say("ready")
    sys.stdin.readline()
    Store.open(sys.argv[1]).close()


def race() -> None:
    """Claim 200 keys in windows that overlap, and say those that are got."""
    cache, target = sys.argv[1:]
    keys = keys_up_to(200)
    with Store.open(cache) as store:
        _say("ready")
        sys.stdin.readline()
        owner = Owner.current()
        for start in range(0, len(keys), 8):
            for claim in store.claims.claim(target, keys[start : start + 16], owner):
                _say(claim.key)
        _say("done")
        sys.stdin.readline()


def hold() -> None:
    """Claim 200 keys, add a walk over all, and then walks over the first ones without an end."""
    cache, target = sys.argv[1:]
    keys, owner = keys_up_to(200), Owner.current()
    store = Store.open(cache)
    store.claims.claim(target, keys, owner)
    store.claims.append_rounds(target, _walk(keys, 0.5, 0.25, wall_s=1.5), owner)
    _say("ready")
    while True:
        store.claims.append_rounds(target, _walk(keys[:20], 0.125, wall_s=0.5), owner)


def measure_by_another_clock() -> None:
    """Measure keys to the end when told to, with a clock that is so many seconds ahead."""
    cache, target, ahead_s = sys.argv[1:]
    now = time.time
    time.time = lambda: now() + float(ahead_s)
    keys, owner = keys_up_to(6)[1:], Owner.current()
    with Store.open(cache) as store:
        store.claims.claim(target, keys, owner)
        store.claims.append_rounds(target, _walk(keys, 0.5, wall_s=1.0), owner)
        _say("ready")
        sys.stdin.readline()
        store.claims.append_rounds(target, _walk(keys, 0.25, wall_s=1.0), owner)
        store.claims.finish(target, keys, owner)
