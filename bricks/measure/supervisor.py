"""The parent's side of the worker process: start it, ask it, and outlive it.

A worker that crashes, hangs or is killed becomes a :class:`WorkerDied` with the reason; asking
again starts a fresh one. It must not know what is asked, or why.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from bricks.errors import WorkerError
from bricks.measure.protocol import LIFELINE, SCRATCH, decode, encode

_logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0

# How often a worker that is killed from outside is taken for an accident.
PATIENCE = 3
# Models travel without weights; what is larger than this would fill the parent's memory.
MAX_ANSWER_BYTES = 256 << 20

# What tells glibc's allocator to keep what is freed, in one heap. Large pages would cost more to
# fill than they spare.
_TUNABLES = "GLIBC_TUNABLES"
_KEEPING = (
    "glibc.malloc.mmap_max=0",
    f"glibc.malloc.trim_threshold={1 << 40}",
    f"glibc.malloc.top_pad={64 << 20}",
)


class WorkerDied(WorkerError):
    """The worker ended, by itself or because it took too long."""


class WorkerKilled(WorkerDied):
    """The worker was killed, not by the kernel for lack of memory: maybe by a person."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is started with. ``memory_bytes`` limits its data; None: no limit.

    ``workers`` is how many nodes of a model it may run at the same time. One that is not ``timing``
    keeps the memory that it has had, since most of what it does is to fill memory for the first
    time; that would change how long bricks take.
    """

    backend: str
    threads: int
    seed: int
    memory_bytes: int | None = None
    command: Sequence[str] = (sys.executable, "-m", "bricks.measure.worker")
    workers: int = 1
    timing: bool = True
    optimization: str = "all"


class Supervisor:
    """Owns one worker process at a time."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._memory_bytes = settings.memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._log = tempfile.TemporaryFile()
        self._pending = bytearray()
        self._oom_kills: int | None = None
        self.starts = 0
        self._asked = 0  # of the live worker
        self._awaited = False  # whether it still has to say that it is ready
        self._closed = False

    @property
    def fresh(self) -> bool:
        """Whether no worker lives that was asked anything: later ones may keep what they had."""
        return self._process is None or not self._asked

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
        it ends or stays silent too long. Whatever else breaks off the exchange, such as Ctrl-C,
        ends the worker: its answer would be taken for that to the next request.
        """
        if self._process is not None and self._process.poll() is not None:
            self.reset()  # it ended while nobody asked
        self._refuse_if_closed()
        self.awaken()
        self._welcome()
        self._asked += 1
        message = self._exchange({"op": op, **fields}, timeout_s, on_step)
        if "error" in message:
            raise WorkerError(str(message["error"]))
        answer: dict[str, Any] = message["ok"]
        return answer

    def ask_afresh(self, op: str, *, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """As :meth:`ask`, for what any worker can answer: asked again if it is killed meanwhile."""
        for _ in range(PATIENCE - 1):
            with suppress(WorkerKilled):
                return self.ask(op, timeout_s=timeout_s, **fields)
        return self.ask(op, timeout_s=timeout_s, **fields)

    @contextmanager
    def memory_limited(self, memory_bytes: int) -> Iterator[None]:
        """Limit the worker's data to this meanwhile, and never to more than its settings say."""
        most = self._settings.memory_bytes
        self._limit_memory(memory_bytes if most is None else min(memory_bytes, most))
        try:
            yield
        finally:
            self._limit_memory(most)

    def _limit_memory(self, memory_bytes: int | None) -> None:
        self._memory_bytes = memory_bytes
        if self._process is not None:
            with suppress(WorkerDied):  # the next one starts with this limit
                self.ask("limit", timeout_s=START_TIMEOUT_S, memory_bytes=memory_bytes)

    def processor_s(self) -> float:
        """Processor time in seconds that the live worker has taken; 0 if there is none."""
        if self._process is None:
            return 0.0
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def reset(self) -> None:
        """End the worker, at once; the next request starts a fresh one."""
        self._end()

    def close(self) -> None:
        """End the worker for good."""
        self._closed = True
        self._end()
        self._log.close()

    def awaken(self) -> None:
        """Start the worker if there is none, and do not wait for it: importing takes a while."""
        self._refuse_if_closed()
        if self._process is not None:
            return
        settings = self._settings
        self._spawn()
        self.starts += 1
        self._asked = 0
        hello = {
            "op": "hello",
            "backend": settings.backend,
            "threads": settings.threads,
            "seed": settings.seed,
            "memory_bytes": self._memory_bytes,
            "workers": settings.workers,
            "timing": settings.timing,
            "optimization": settings.optimization,
        }
        self._awaited = True
        with self._unharmed():
            self._send(encode(hello), time.monotonic() + START_TIMEOUT_S, START_TIMEOUT_S)

    def _welcome(self) -> None:
        """Wait until a worker that was just started is ready."""
        if self._awaited:
            self._awaited = False
            message = self._answer(START_TIMEOUT_S, None)
            if "error" in message:
                self._end()  # it would have no backend
                raise WorkerError(str(message["error"]))

    def _refuse_if_closed(self) -> None:
        if self._closed:  # maybe by another thread
            raise WorkerError("the worker was ended")

    def _spawn(self) -> None:
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        # The package may be imported from a source tree that is not installed.
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        paths = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
        if not self._settings.timing:
            told = environment.get(_TUNABLES)
            environment[_TUNABLES] = ":".join(filter(None, (*_KEEPING, told)))
        self._log.seek(0)
        self._log.truncate()
        self._pending = bytearray()
        self._oom_kills = oom_kills()
        # Nobody writes to it: it ends when this process does, however that comes about.
        watched, self._lifeline = os.pipe()
        environment[LIFELINE] = str(watched)
        self._scratch = tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True)
        environment[SCRATCH] = self._scratch.name
        try:
            self._process = subprocess.Popen(
                list(self._settings.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                bufsize=0,
                pass_fds=(watched,),
                start_new_session=True,  # Ctrl-C is for the parent alone
            )
        except OSError as exc:
            self._end()
            raise WorkerError(f"the worker cannot be started: {exc}") from exc
        finally:
            os.close(watched)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        _logger.info(
            "worker %d started: %s, threads: %d",
            self._process.pid, self._settings.backend, self._settings.threads,
        )  # fmt: skip

    def _exchange(
        self, request: dict[str, Any], timeout_s: float, on_step: Callable[[int], None] | None
    ) -> dict[str, Any]:
        """The message that ends the exchange, ``ok`` or ``error``; anything else ends the worker.

        So a worker that lives afterwards has nothing left to say.
        """
        with self._unharmed():
            self._send(encode(request), time.monotonic() + timeout_s, timeout_s)
        return self._answer(timeout_s, on_step)

    def _answer(self, timeout_s: float, on_step: Callable[[int], None] | None) -> dict[str, Any]:
        with self._unharmed():
            deadline = time.monotonic() + timeout_s
            while True:
                line = self._line(deadline, timeout_s)
                try:
                    message = decode(line)
                except WorkerError as error:
                    raise WorkerDied(str(error)) from error
                if "ok" in message or "error" in message:
                    return message
                if on_step is not None:
                    on_step(int(message.get("at", 0)))
                deadline = time.monotonic() + timeout_s

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Whatever breaks this off ends the worker."""
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _send(self, line: bytes, deadline: float, timeout_s: float) -> None:
        assert self._process is not None and self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        left = memoryview(line)
        try:
            while left:  # a pipe takes less than all of a long line
                _wait([], [pipe], deadline, timeout_s)
                left = left[os.write(pipe, left) :]
        except OSError:
            raise self._died() from None

    def _line(self, deadline: float, timeout_s: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > MAX_ANSWER_BYTES:
                raise WorkerDied(f"it said more than {MAX_ANSWER_BYTES >> 20} MiB at once")
            _wait([pipe], [], deadline, timeout_s)
            chunk = os.read(pipe, 1 << 20)
            if not chunk:
                raise self._died()
            self._pending += chunk
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def _died(self) -> WorkerDied:
        """Why the worker is gone, in a few words."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        code = self._process.returncode
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").strip().splitlines()
        if code is not None and code < 0:
            name = _signal_name(-code)
            if -code != signal.SIGKILL:
                return WorkerDied(f"it crashed the process ({name})")
            if (oom_kills() or 0) > (self._oom_kills or 0):
                return WorkerDied(f"it crashed the process ({name}, for lack of memory)")
            return WorkerKilled(f"its process was killed ({name}), maybe for lack of memory")
        said = f": {tail[-1][:200]}" if tail else ""
        return WorkerDied(f"it ended the process (exit status {code}){said}")

    def _end(self) -> None:
        process, self._process = self._process, None
        self._awaited = False
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            _logger.info("worker %d ended", process.pid)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if self._scratch is not None:
            self._scratch.cleanup()


def _wait(readable: list[int], writable: list[int], deadline: float, timeout_s: float) -> None:
    """Until one of the pipes is ready; :class:`WorkerDied` if that is not before ``deadline``."""
    left = deadline - time.monotonic()
    if left > 0:
        ready = select.select(readable, writable, [], left)
        if ready[0] or ready[1]:
            return
    raise WorkerDied(f"it did not finish within {timeout_s:.0f} s")


def oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory; None if it doesn't tell."""
    with suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as lines:
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
