"""Fifty users at once: no error; ``benchmarks/times.py`` says how long they wait in a minute."""

from __future__ import annotations

import http.client
import os
import threading
import time
from pathlib import Path

import pytest
from factories import mlp
from web_server import Served, serving

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

USERS, SECONDS = 50, 10.0


def ask_on(served: Served, paths: list[str], until_s: float, waited: list[float]) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=30)
    number = 0
    while time.monotonic() < until_s:
        started = time.monotonic()
        connection.request("GET", paths[number % len(paths)])
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        waited.append(time.monotonic() - started)
        number += 1
    connection.close()


def users(served: Served, paths: list[str], seconds: float) -> tuple[list[float], int]:
    """What each request waited, in order, and how many users met an error."""
    waited: list[list[float]] = [[] for _ in range(USERS)]
    failed: list[BaseException] = []

    def user(mine: list[float]) -> None:
        try:
            ask_on(served, paths, time.monotonic() + seconds, mine)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=user, args=(mine,)) for mine in waited]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(s for mine in waited for s in mine), len(failed)


@pytest.mark.slow
def test_fifty_users_at_once_meet_no_error(tmp_path: Path) -> None:
    with serving("--cache", tmp_path / "c", "--measure", BRICKS_PUBLISHED=os.devnull) as served:
        digest = served.answers(mlp().SerializeToString(), name="mlp")["digest"]
        paths = [f"/models/{digest}", f"/api/models/{digest}", f"/models/{digest}?threads=1"]
        waited, failed = users(served, paths, SECONDS)
    assert failed == 0
    assert len(waited) > USERS
