"""A server of ``bricks web`` as a process of its own, on a free port, and how to talk with it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import PATIENCE_S, started, until

from bricks.session.options import Options

LISTENING = "bricks: listening on http://"


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Served:
    """A running server, and its process if that is one of its own."""

    process: subprocess.Popen[str]

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"http://{address}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = self.connect()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body=body, headers=named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def upload(self, content: bytes, **query: object) -> Reply:
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return self.ask(
            "POST", f"/api/models?{words}", content, content_type="application/octet-stream"
        )

    def finished(self, accepted: Reply) -> dict[str, Any]:
        """A job after it has ended, from the answer that accepted it."""
        assert accepted.status == 202, accepted.text

        def ended() -> dict[str, Any] | None:
            job: dict[str, Any] = self.get(f"/api/jobs/{accepted.json['job']}").json
            return job if job["state"] in ("done", "failed") else None

        found: dict[str, Any] = until(ended)
        return found

    def answers(self, content: bytes, **query: object) -> dict[str, Any]:
        """All answers for a model."""
        job = self.finished(self.upload(content, **query))
        assert job["state"] == "done", job
        found: dict[str, Any] = self.get(f"/api/models/{job['digest']}").json
        return found


@contextmanager
def serving(*options: object, **variables: str) -> Iterator[Served]:
    """A server with these options; killed in the end if it still runs."""
    words = ("web", "--port", 0, "--runtime", "fake", *options)
    with started(*words, **variables) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(LISTENING):
                break
        else:
            raise AssertionError(f"it does not listen: {''.join(said)}")
        served = Served(line.removeprefix(LISTENING).strip())
        served.process = process
        yield served


@contextmanager
def serving_here(
    cache: Path,
    published: str = os.devnull,
    *,
    host: str = "127.0.0.1",
    trusted_proxies: Sequence[str] = (),
    **how: Any,
) -> Iterator[Served]:
    """A server in a thread of this process, for what does not depend on how a process ends.

    It listens on ``host``. ``how`` are options of ``application``; ``published`` is the folder of
    what is published.
    """
    import uvicorn

    from bricks.web.app import application
    from bricks.web.server import bound, serve

    servers: list[uvicorn.Server] = []

    class Noted(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    ready = threading.Event()
    with bound(host, 0) as listening:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BRICKS_PUBLISHED", published)
            patch.setattr(uvicorn, "Server", Noted)
            app = application(str(cache), Options(runtime="fake"), host=host, **how)
            thread = threading.Thread(
                target=serve,
                args=(app, listening, ready.set),
                kwargs={"trusted_proxies": trusted_proxies},
            )
            thread.start()
            assert ready.wait(PATIENCE_S)
        try:
            yield Served(f"127.0.0.1:{listening.getsockname()[1]}")
        finally:
            servers[0].should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the server does not end"
