"""Fifty users at once: no error; ``benchmarks/times.py`` says how long they wait in a minute."""

from __future__ import annotations

import http.client
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import PATIENCE_S
from factories import mlp
from web_server import Served, serving

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

USERS, REQUESTS = 50, 20


def ask_on(served: Served, paths: list[str]) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=PATIENCE_S)
    for number in range(REQUESTS):
        connection.request("GET", paths[number % len(paths)])
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


@pytest.mark.slow
def test_fifty_users_at_once_meet_no_error(tmp_path: Path) -> None:
    with serving("--cache", tmp_path / "c", "--measure", BRICKS_PUBLISHED=os.devnull) as served:
        digest = served.answers(mlp().SerializeToString(), name="mlp")["digest"]
        paths = [f"/models/{digest}", f"/api/models/{digest}", f"/models/{digest}?threads=1"]
        with ThreadPoolExecutor(USERS) as users:
            asking = [users.submit(ask_on, served, paths) for _ in range(USERS)]
        for each in asking:
            each.result()
