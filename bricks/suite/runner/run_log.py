"""The file of results: a line for each fact, kept as soon as it is written.

Whatever ends the process, all lines before stay; a last line that is cut off is dropped. Each line
is ``[kind, data, checksum]`` as JSON. Must not know what is measured.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bricks.errors import SuiteError

FORMAT, VERSION = "bricks-run", 1
# Kinds of lines. BEGUN names a brick right before it first runs, DONE one that has run.
HEAD, BRICK, PLAN, ROUND, FAILURE = "format", "brick", "plan", "round", "failure"
BEGUN, DONE = "begun", "done"

Line = tuple[str, Any]  # kind, data


def written(kind: str, data: Any) -> bytes:
    """A line of the file."""
    text = json.dumps([kind, data], separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"{text[:-1]},{checksum(text)}]\n".encode()


def checksum(text: str) -> int:
    """The checksum of a line without it."""
    return zlib.crc32(text.encode())


def read(raw: bytes) -> Line | None:
    """The inverse of :func:`written`; None for a line that is not as it was written."""
    try:
        kind, data, stated = json.loads(raw)
    except (ValueError, TypeError):
        return None
    text = json.dumps([kind, data], separators=(",", ":"), ensure_ascii=False)
    return (str(kind), data) if raw.endswith(b"\n") and checksum(text) == stated else None


class RunLog:
    """Lines that are appended to the file at ``path``, with those that it had ``before``.

    ``head`` is its first line. Raises :class:`SuiteError` for a file with another one: its results
    are of another suite, host or runtime.
    """

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self.before: list[Line] = []
        try:
            raw = path.read_bytes() if path.exists() else b""
            whole = raw[: raw.rfind(b"\n") + 1]
            known = map(read, whole.splitlines(keepends=True))
            self.before = [line for line in known if line is not None]
            if raw and (not self.before or self.before[0] != (HEAD, json.loads(json.dumps(head)))):
                raise SuiteError(
                    f"{self.path} is of another suite, host or runtime, or no results: give another"
                    " --out"
                )
            if len(whole) < len(raw):
                os.truncate(self.path, len(whole))
            self._file = path.open("ab")
        except OSError as exc:
            raise SuiteError(
                f"{path} cannot be written ({exc.strerror}): give another --out"
            ) from exc
        if not self.before:
            self.add(HEAD, head)

    def add(self, kind: str, data: Any, *, keep: bool = True) -> None:
        """Append a line; with ``keep``, wait until it is on the disk."""
        self._file.write(written(kind, data))
        self._file.flush()
        if keep:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def of(self, kind: str) -> Iterator[Any]:
        """The data of all lines of a kind that the file had before."""
        return (data for own, data in self.before if own == kind)
