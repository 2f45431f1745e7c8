"""What does adding a model to a measured cache cost? Used by cost.py.

Models are removed from a copy of the caches, and added again: each by a process of its own, which
has imported bricks and done nothing else, beside another process that runs the model itself; and
all in turn inside one session, whose workers run.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from bricks import Bench
from bricks.measure.conditions import Conditions
from bricks.session import measuring
from bricks.session.batch import decompose_all
from bricks.zoo import entries

# In place of an effort: the models themselves are run, not their bricks.
ALONE = "alone"


def adding(
    caches: Path, names: Sequence[str], efforts: Sequence[str], threads: int
) -> list[dict[str, Any]]:
    """The cost of adding each of ``names`` to caches that hold all models, one for each effort.

    The folder ``caches`` holds them under the efforts' names, and as ``plans`` a cache with plans
    alone. The last row is of all ``names``, added by one command.
    """
    return [_added(caches, group, efforts, threads) for group in (*([n] for n in names), names)]


def in_session(
    caches: Path, names: Sequence[str], efforts: Sequence[str], threads: int
) -> list[dict[str, Any]]:
    """The cost of adding each of ``names`` within a session that has added another model before.

    All are forgotten first. Each is then read, decomposed and measured by a bench at each effort,
    and read and run by one that only runs models, before the next one's turn.
    """
    first = next(entry.name for entry in entries() if entry.name not in names)
    found: list[dict[str, Any]] = []
    with ExitStack() as opened:
        benches = {
            effort: opened.enter_context(_session(caches, effort, [first, *names], threads))
            for effort in (ALONE, *efforts)
        }
        for name in (first, *names):
            done = {effort: _add(bench, [name], effort) for effort, bench in benches.items()}
            alone = done.pop(ALONE)
            found.append(
                {
                    "model": name,
                    "alone_s": alone["seconds"],
                    "adding_s": {effort: each["seconds"] for effort, each in done.items()},
                    "new_bricks": {effort: each["new_bricks"] for effort, each in done.items()},
                }
            )
    return found[1:]


def _session(caches: Path, effort: str, names: Sequence[str], threads: int) -> Bench:
    """A bench on a copy of a cache without ``names``; all of them wait for one another anyway."""
    return _bench(_copy(caches, effort, f"session-{effort}", names), effort, threads)


def _copy(caches: Path, effort: str, name: str, names: Collection[str]) -> Path:
    folder = caches / name
    shutil.rmtree(folder, ignore_errors=True)
    # Running a model needs no decomposition.
    shutil.copytree(caches / ("plans" if effort == ALONE else effort), folder)
    if effort != ALONE:
        forget(folder, names)
    return folder


def _bench(cache: Path, effort: str, threads: int) -> Bench:
    options: dict[str, Any] = {} if effort == ALONE else {"effort": effort}
    return Bench(cache, threads=threads, conditions=Conditions(exclusive=False), **options)


def _add(bench: Bench, names: Sequence[str], effort: str) -> dict[str, Any]:
    """Read, decompose and measure models, or read and run them: seconds and counts."""
    counts = {}
    started = time.perf_counter()
    models = [bench.read(name) for name in names]
    if effort == ALONE:
        measuring.measure_whole(bench.workspace, models)
    else:
        decompose_all(bench.workspace, models)
        done = bench.measure(models)
        counts = {"new_bricks": done.new_bricks, "bricks": done.bricks}
    return {"seconds": time.perf_counter() - started, **counts}


def _added(
    caches: Path, names: Sequence[str], efforts: Sequence[str], threads: int
) -> dict[str, Any]:
    done = {}
    for effort in (*efforts, ALONE):
        folder = _copy(caches, effort, "adding", names)
        command = [sys.executable, __file__, str(folder), effort, str(threads), *names]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        done[effort] = json.loads(answer.stdout)
    return {
        "models": list(names),
        "alone_s": done.pop(ALONE)["seconds"],
        "adding_s": {effort: each["seconds"] for effort, each in done.items()},
        "new_bricks": {effort: each["new_bricks"] for effort, each in done.items()},
        "bricks": done[efforts[0]]["bricks"],
    }


def forget(cache: Path, names: Collection[str]) -> None:
    """Remove models from a cache, with the bricks that only they need."""
    with closing(sqlite3.connect(cache / "bricks.sqlite")) as connection, connection:
        own, others = set[str](), set[str]()
        for number, text in connection.execute("SELECT id, plan FROM plans").fetchall():
            plan = json.loads(text)
            (own if plan["model"] in names else others).update(o[0] for o in plan["occurrences"])
            if plan["model"] in names:
                connection.execute("DELETE FROM plans WHERE id = ?", (number,))
        for key in own - others:
            connection.execute(
                "DELETE FROM rounds WHERE measurement_id IN"
                " (SELECT id FROM measurements WHERE brick_key = ?)",
                (key,),
            )
            connection.execute("DELETE FROM measurements WHERE brick_key = ?", (key,))
            connection.execute("DELETE FROM bricks WHERE key = ?", (key,))


def one_of_each_family(names: Sequence[str]) -> list[str]:
    """The alphabetically middle model of each family with more than two among ``names``."""
    families: dict[str, list[str]] = {}
    for entry in entries():
        if entry.name in names:
            families.setdefault(entry.family, []).append(entry.name)
    return [sorted(found)[len(found) // 2] for found in families.values() if len(found) > 2]


def main() -> None:
    """Add models to a cache at an effort, or run them; prints seconds and counts as JSON."""
    cache, effort, threads, *names = sys.argv[1:]
    started = time.perf_counter()
    with _bench(Path(cache), effort, int(threads)) as bench:
        counts = _add(bench, names, effort)
    print(json.dumps(counts | {"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
