"""Commands on a terminal of their own, and what is to be seen there in the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from commands import COMMAND, PATIENCE_S, environment

from bricks.cli import main

CTRL_C = b"\x03"

# What may be set where the tests run, and would decide how commands look.
_LOOKS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM", "GITHUB_ACTIONS")

_TOKEN = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])|\r|\n|\x1b|[^\x1b\r\n]", re.DOTALL)


def plain(**changes: str) -> dict[str, str]:
    """The environment of a command on an ordinary terminal, with ``changes``."""
    kept = {name: value for name, value in environment().items() if name not in _LOOKS}
    return {**kept, "TERM": "xterm-256color", **changes}


class Terminal:
    """A process whose standard streams are a terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.raw = ""

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def until(self, text: str) -> str:
        """Wait until ``text`` was shown; all that was, until then."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.raw:
            assert time.monotonic() < deadline and self._read(), f"no {text!r} in {self.raw!r}"
        return self.raw

    def end(self) -> int:
        """Wait for the process to end, and return its exit status."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, f"it goes on: {self.raw!r}"
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Take in what is shown within a second; False once the other side is closed."""
        if select.select([self._descriptor], [], [], 1.0)[0]:
            try:
                chunk = os.read(self._descriptor, 1 << 16)
            except OSError:  # how Linux says that the other side is closed
                return False
            self.raw += chunk.decode(errors="replace")
            return bool(chunk)
        return self.process.poll() is None

    @property
    def screen(self) -> list[str]:
        """The lines that are to be seen, up to where the cursor is."""
        return screen(self.raw)

    @property
    def cursor_hidden(self) -> bool:
        return self.raw.rfind("\x1b[?25l") > self.raw.rfind("\x1b[?25h")


@contextmanager
def terminal(
    words: Sequence[object],
    *,
    columns: int = 80,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
    out: int | None = None,
) -> Iterator[Terminal]:
    """A program on a terminal so wide; ``out`` is its standard output, if not the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def belong() -> None:  # to the terminal, so that its Ctrl-C reaches the process
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(
        [str(word) for word in words],
        stdin=theirs,
        stdout=theirs if out is None else out,
        stderr=theirs,
        env=plain() if variables is None else dict(variables),
        cwd=folder,
        start_new_session=True,
        preexec_fn=belong,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)


def shown(*arguments: object, columns: int = 80, status: int = 0, **variables: str) -> Terminal:
    """A command of ours on a terminal, from start to end."""
    words = [*COMMAND, *arguments]
    with terminal(words, columns=columns, variables=plain(**variables)) as found:
        assert found.end() == status, found.raw
    return found


def screen(raw: str) -> list[str]:
    """What a terminal shows that got this: enough of one for what is drawn here."""
    lines, row, column = [""], 0, 0
    for match in _TOKEN.finditer(raw):
        token = match[0]
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif match[3] == "A":
            row = max(0, row - int(match[2] or 1))
        elif match[3] == "K":
            assert match[2] == "2", "only whole lines are known here"
            lines[row] = ""
        elif match[3] in ("m", "h", "l"):
            pass
        else:
            assert match[3] is None, f"not known here: {token!r}"
            before = lines[row].ljust(column)
            lines[row] = before[:column] + token + before[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


class Shown:
    """What a command has shown on a terminal by its end."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @property
    def screen(self) -> list[str]:
        """The lines that are to be seen."""
        return screen(self.raw)


def shown_here(*arguments: object, columns: int = 80, status: int = 0, **variables: str) -> Shown:
    """As :func:`shown`, in this process, whose standard streams are a terminal meanwhile."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(_pieces(ours)))
    reader.start()
    try:
        with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w") as stream:
            for name in _LOOKS:
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm-256color", **variables}.items():
                patch.setenv(name, value)
            for name in ("stdout", "stderr"):
                patch.setattr(sys, name, stream)
            found = main.run([str(argument) for argument in arguments])
    finally:
        reader.join()
        os.close(ours)
    raw = b"".join(pieces).decode(errors="replace")
    assert found == status, raw
    return Shown(raw)


def _pieces(descriptor: int) -> Iterator[bytes]:
    """What a terminal is given, until its other side is closed."""
    with suppress(OSError):  # how Linux says that it is
        while chunk := os.read(descriptor, 1 << 16):
            yield chunk
