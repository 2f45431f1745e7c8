"""A server of ``bricks web`` as a process of its own, on a free port, and how to talk with it."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from commands import PATIENCE_S, started, until

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
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
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
        yield Served(process, line.removeprefix(LISTENING).strip())
