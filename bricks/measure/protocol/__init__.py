"""The protocol of supervisor and worker: typed requests and answers, as JSON lines on two pipes.

A request is a frozen dataclass, and its type names the type of its answer (:mod:`.request`). On the
pipe it is ``{"op": TYPE, …}`` with its fields; the answer is ``{"ok": …}`` or ``{"error": TEXT}``.
Before the answer, the worker may send lines ``{"at": N}``: step N is about to run.
Nothing is pickled, so a worker may live in another Python environment. Models travel as base64 of
their bytes, without weights. What a line is, and the environment variables with which a worker
starts, are here; the requests are in modules. This package must not know how a request is answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bricks.errors import WorkerError

# The environment variable with the number of a pipe that a worker inherits. The pipe ends with the
# parent, and so should the worker.
LIFELINE = "BRICKS_LIFELINE"
# The environment variable that names a folder for the worker's temporary files; the parent made
# it, and removes it.
SCRATCH = "BRICKS_SCRATCH"
# The environment variable that names the folder of what the worker's Python lacks, if there is one.
PACKAGES = "BRICKS_WORKER_PACKAGES"


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as one line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message on a line; :class:`WorkerError` if the line has none."""
    try:
        message = json.loads(line)
    except ValueError as exc:
        raise WorkerError(f"the worker said something that is not JSON: {line[:80]!r}") from exc
    if not isinstance(message, dict):
        raise WorkerError(f"the worker said something that is not a message: {line[:80]!r}")
    return message
