"""What does adding a model to a measured cache cost? Used by cost.py.

Each model is removed from a copy of the caches, and added again by a process of its own, which has
imported bricks and done nothing else; another process runs the model itself.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bricks import Bench
from bricks.analysis.batch import decompose_all
from bricks.measure.campaign import Conditions
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


def _added(
    caches: Path, names: Sequence[str], efforts: Sequence[str], threads: int
) -> dict[str, Any]:
    done = {}
    for effort in (*efforts, ALONE):
        folder = caches / "adding"
        shutil.rmtree(folder, ignore_errors=True)
        # Running a model needs no decomposition.
        shutil.copytree(caches / ("plans" if effort == ALONE else effort), folder)
        if effort != ALONE:
            forget(folder, names)
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
    options: dict[str, Any] = {} if effort == ALONE else {"effort": effort}
    options |= {"threads": int(threads), "conditions": Conditions(exclusive=False)}
    counts = {}
    started = time.perf_counter()
    with Bench(cache, **options) as bench:
        models = [bench.read(name) for name in names]
        if effort == ALONE:
            bench.run(models)
        else:
            decompose_all(bench, models)
            done = bench.measure(models)
            counts = {"new_bricks": done.new_bricks, "bricks": done.bricks}
    print(json.dumps({"seconds": time.perf_counter() - started, **counts}))


if __name__ == "__main__":
    main()
