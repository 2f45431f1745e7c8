"""What a cache holds, looked at from outside while others use it, or after a fault."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands import CommandResult, Here
from store_examples import keys_up_to, make_decomposition, make_target, open_with_target

from bricks.decompose.identity import key_of
from bricks.samples.measurement import Round
from bricks.store import Owner, Store

FILE = "bricks.sqlite"

# Commands that only look, at a cache that knows this model on the fake runtime.
MODEL = "squeezenet"
LOOK = {
    "predict": ("predict", MODEL, "--no-measure", "--json"),
    "stats": ("cache", "stats", "--json"),
    "systems": ("systems", "--json"),
    "verify": ("cache", "verify", "--json"),
}

TARGET = make_target()
KEYS = keys_up_to(6)[1:]

# A measurement's state and rounds, as they are in the file, by target and key.
Kept = dict[tuple[str, str], tuple[str, list[tuple[Any, ...]]]]


@contextmanager
def copied(cache: Path) -> Iterator[Path]:
    """A copy of a cache that nobody uses now: looking into it changes nothing for the next run."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "cache"
        copy.mkdir()
        for suffix in ("", "-wal", "-shm"):
            if (cache / (FILE + suffix)).exists():
                shutil.copy(cache / (FILE + suffix), copy)
        yield copy


def kept(cache: Path) -> Kept:
    """All measurements of a cache, as the next run would find them."""
    found: Kept = {}
    with copied(cache) as copy, closing(sqlite3.connect(copy / FILE)) as connection:
        if not connection.execute("SELECT * FROM sqlite_master").fetchall():
            return {}  # not made yet
        rows = "SELECT id, target_key, brick_key, state FROM measurements"
        conditions = "host, waited_share, device_state"
        taken = f"SELECT number, samples, {conditions} FROM rounds"
        for number, target, key, state in connection.execute(rows).fetchall():
            assert (target, key) not in found, f"{key} is there twice"
            query = f"{taken} WHERE measurement_id = ? ORDER BY number"
            found[target, key] = (state, connection.execute(query, (number,)).fetchall())
    return found


def problems(cache: Path, *, real: bool = True) -> list[str]:
    """What ``bricks cache verify`` finds in a cache that nobody uses now; are its bricks real?"""
    with copied(cache) as copy, Store.open(copy) as store:
        return store.contents.verify(rekey=(lambda brick: key_of(brick.model)) if real else None)


def look(here: Here, name: str) -> CommandResult:
    """What one of the commands in ``LOOK`` says."""
    if name == "predict":
        return here(*LOOK[name])
    return here.plain(*LOOK[name], "--cache", here.cache)


def lay(here: Here, content: bytes) -> Path:
    """Make this the file of the cache, and nothing else be there."""
    shutil.rmtree(here.cache, ignore_errors=True)
    here.cache.mkdir()
    file = here.cache / FILE
    file.write_bytes(content)
    return file


def with_bricks(folder: Path) -> Store:
    """A cache that knows the bricks ``KEYS``, which are no real ones."""
    store = open_with_target(folder)
    store.plans.save(make_decomposition((1, 2, 3, 4, 5)), TARGET.key)
    return store


def left_by_a_killed_run(folder: Path) -> Path:
    """A cache of which a write-ahead log holds the last four walks, over ``KEYS``."""
    owner = Owner.current()
    left = folder / "left"
    left.mkdir()
    with with_bricks(folder / "living") as store:
        store.claims.claim(TARGET.key, KEYS, owner)
        for number in range(4):
            walk = {key: (Round((0.5, number + 1.0)), 1.0) for key in KEYS}
            store.claims.append_rounds(TARGET.key, walk, owner)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(folder / "living" / (FILE + suffix), left)
    assert (left / f"{FILE}-wal").stat().st_size > 4096
    return left


@dataclass
class Tally:
    """What a series of faults did to measurements, in figures."""

    kills: int = 0
    amid_rounds: int = 0
    finished: int = 0
    rounds: int = 0
    lost: int = 0
    doubled: int = 0
    found: list[str] = field(default_factory=list)

    def compare(self, before: Kept, cache: Path) -> Kept:
        """Count what a cache lacks of ``before``, and holds twice; returns what it holds now."""
        after = kept(cache)
        for name, (state, rounds) in before.items():
            state_now, rounds_now = after.get(name, ("gone", []))
            self.finished += state == "done"
            self.rounds += len(rounds)
            # A measurement may be finished, and have rounds added; neither is ever taken back.
            self.lost += state == "done" != state_now
            self.lost += sum(a != b for a, b in zip(rounds, rounds_now, strict=False))
            self.lost += max(0, len(rounds) - len(rounds_now))
        for _, rounds in after.values():
            self.doubled += len(rounds) - len({row[1:] for row in rounds})
        self.found += problems(cache)
        return after

    @property
    def harm(self) -> tuple[int, int, list[str]]:
        """What was lost, what is there twice, and what ``verify`` finds."""
        return self.lost, self.doubled, self.found


NO_HARM: tuple[int, int, list[str]] = (0, 0, [])
