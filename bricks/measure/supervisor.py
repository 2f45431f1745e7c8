"""The parent's side of the worker process: start it, ask it, and outlive it.

A worker that crashes, hangs or is killed becomes a :class:`WorkerDied` with the reason; asking
again starts a fresh one. It must not know what is asked, or why.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bricks.errors import WorkerError
from bricks.measure.protocol import decode, encode

START_TIMEOUT_S = 120.0


class WorkerDied(WorkerError):
    """The worker ended, by itself or because it took too long."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is started with. ``memory_bytes`` limits its data; None: no limit."""

    backend: str
    threads: int
    seed: int
    memory_bytes: int | None = None
    command: Sequence[str] = (sys.executable, "-m", "bricks.measure.worker")


class Supervisor:
    """Owns one worker process at a time."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()
        self._pending = b""
        self.starts = 0

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        op: str,
        *,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """The worker's answer to a request.

        ``timeout_s`` is the longest silence: it starts anew with every step that is announced to
        ``on_step``. Raises :class:`WorkerError` where the worker refuses, :class:`WorkerDied` where
        it ends or stays silent too long.
        """
        if self._process is None:
            self._start()
        return self._exchange({"op": op, **fields}, timeout_s, on_step)

    def close(self) -> None:
        """End the worker, at once."""
        self._end()
        self._log.close()

    def _start(self) -> None:
        settings = self._settings
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        # The package may be imported from a source tree that is not installed.
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        paths = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
        self._log.seek(0)
        self._log.truncate()
        self._pending = b""
        try:
            self._process = subprocess.Popen(
                list(settings.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the parent alone
            )
        except OSError as exc:
            raise WorkerError(f"the worker cannot be started: {exc}") from exc
        self.starts += 1
        hello = {
            "op": "hello",
            "backend": settings.backend,
            "threads": settings.threads,
            "seed": settings.seed,
            "memory_bytes": settings.memory_bytes,
        }
        try:
            self._exchange(hello, START_TIMEOUT_S, None)
        except WorkerError:
            self._end()  # it would have no backend
            raise

    def _exchange(
        self, request: dict[str, Any], timeout_s: float, on_step: Callable[[int], None] | None
    ) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            line = memoryview(encode(request))
            while line:  # an unbuffered pipe may take less than all of it
                line = line[process.stdin.write(line) or 0 :]
        except OSError:
            raise self._died() from None
        while True:
            message = decode(self._line(timeout_s))
            if "at" in message:
                if on_step is not None:
                    on_step(int(message["at"]))
            elif "error" in message:
                raise WorkerError(str(message["error"]))
            else:
                answer: dict[str, Any] = message["ok"]
                return answer

    def _line(self, timeout_s: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                self._end()
                raise WorkerDied(f"it did not finish within {timeout_s:.0f} s")
            chunk = os.read(pipe, 1 << 20)
            if not chunk:
                raise self._died()
            self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _died(self) -> WorkerDied:
        """Why the worker is gone, in a few words."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        code = self._process.returncode
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").strip().splitlines()
        self._end()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            cause = ", most likely for lack of memory" if -code == signal.SIGKILL else ""
            return WorkerDied(f"it crashed the process ({name}{cause})")
        said = f": {tail[-1][:200]}" if tail else ""
        return WorkerDied(f"it ended the process (exit status {code}){said}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
