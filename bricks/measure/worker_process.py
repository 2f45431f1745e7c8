"""One worker process: starts it, sends and receives lines, and finds out why it ended.

It owns the pipes, the log of standard error and the temporary folder of the process, and removes
them when it ends. It must not know the meaning of lines.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

import psutil

from bricks.errors import WorkerError
from bricks.measure.protocol import LIFELINE, PACKAGES, SCRATCH
from bricks.system.allocator import KEPT_TUNABLES, TUNABLES

# Models travel without weights; a longer answer than this would fill the parent's memory.
MAX_ANSWER_BYTES = 256 << 20

# Settings of glibc's allocator that return freed memory: blocks from glibc's own default size on
# are mapped, and go back when they are freed; otherwise it raises that size with each such block
# that is freed.
_RETURNED = (
    f"glibc.malloc.mmap_threshold={128 << 10}",
    f"glibc.malloc.trim_threshold={128 << 10}",
)

_READ_BYTES = 1 << 20
_EXIT_TIMEOUT_S = 10

# Starts a process. A name of its own, so that tests can have workers that are quicker to start.
launch: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen


class Freed(Enum):
    """Settings of a process's C library for freed memory."""

    BY_DEFAULT = ()
    KEPT = KEPT_TUNABLES
    RETURNED = _RETURNED


def worker_command(python: str, runtime: str) -> tuple[str, ...]:
    """The command that starts a worker; it names the runtime in lists of processes."""
    return python, "-m", "bricks.measure.worker", runtime


class WorkerDied(WorkerError):
    """The worker ended, by itself or because it took too long."""


class WorkerCrashed(WorkerDied):
    """The worker ended by itself: maybe for what it did earlier, since damage shows late."""


class WorkerKilled(WorkerDied):
    """The worker was killed, not by the kernel for lack of memory: maybe by a person."""


class WorkerProcess:
    """A process that runs ``command``, from its start to :meth:`end`.

    ``packages`` is a folder with what the Python of the process lacks. Raises
    :class:`~bricks.errors.WorkerError` where the process cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        freed: Freed = Freed.BY_DEFAULT,
        packages: Path | None = None,
    ) -> None:
        self._pending = bytearray()
        self._oom_kills = oom_kills()
        self._log = tempfile.TemporaryFile()
        # The child waits for the end of this pipe, to which no process writes: the pipe ends when
        # this process ends, for whatever reason.
        watched, lifeline = os.pipe()
        self._lifeline: int | None = lifeline
        self._scratch = tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True)
        environment = _environment(freed, Path(self._scratch.name))
        environment |= {LIFELINE: str(watched), SCRATCH: self._scratch.name}
        if packages is not None:
            environment[PACKAGES] = str(packages)
        try:
            self._process = launch(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                bufsize=0,
                pass_fds=(watched,),
                start_new_session=True,  # Ctrl-C is for the parent alone
            )
        except OSError as exc:
            self._clean_up()
            raise WorkerError(f"the worker cannot be started: {exc}") from exc
        finally:
            os.close(watched)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def processor_s(self) -> float:
        """Its processor time in seconds; 0 if it has ended."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def send(self, line: bytes, timeout_s: float) -> None:
        """Write a line to it; :class:`WorkerDied` if it ends, or does not read it in time."""
        deadline = time.monotonic() + timeout_s
        pipe = self._stdin.fileno()
        left = memoryview(line)
        try:
            while left:  # a pipe takes less than all of a long line
                _wait([], [pipe], deadline, timeout_s)
                left = left[os.write(pipe, left) :]
        except OSError:
            raise self._died() from None

    def receive(self, timeout_s: float) -> bytes:
        """The next line that it writes; :class:`WorkerDied` if it ends, or is silent for long."""
        deadline = time.monotonic() + timeout_s
        pipe = self._stdout.fileno()
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > MAX_ANSWER_BYTES:
                raise WorkerDied(f"it said more than {MAX_ANSWER_BYTES >> 20} MiB at once")
            _wait([pipe], [], deadline, timeout_s)
            chunk = os.read(pipe, _READ_BYTES)
            if not chunk:
                raise self._died()
            self._pending += chunk
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def kill(self) -> None:
        """Kill it; :meth:`end` removes its files and pipes."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def end(self) -> None:
        """Kill it, and remove its files and pipes."""
        self._close_lifeline()
        self.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()
        self._clean_up()

    def _died(self) -> WorkerDied:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_EXIT_TIMEOUT_S)
        code = self._process.returncode
        if code is not None and code < 0:
            name = f"signal {-code}"
            with suppress(ValueError):  # real-time signals have no names
                name = signal.Signals(-code).name
            if -code != signal.SIGKILL:
                return WorkerCrashed(f"it crashed the process ({name})")
            if (oom_kills() or 0) > (self._oom_kills or 0):
                return WorkerDied(f"it crashed the process ({name}, for lack of memory)")
            return WorkerKilled(f"its process was killed ({name}), maybe for lack of memory")
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")
        reason = f": {last.strip()[:200]}" if last else ""
        return WorkerCrashed(f"it ended the process (exit status {code}){reason}")

    def _clean_up(self) -> None:
        self._close_lifeline()
        self._log.close()
        self._scratch.cleanup()

    def _close_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


def oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory; None if it has no count."""
    with suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as lines:
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _environment(freed: Freed, scratch: Path) -> dict[str, str]:
    """The environment of a worker: this process's, and a path that this package comes from."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    # A folder with this package alone: others next to it may be for another Python.
    code = scratch / "code"
    code.mkdir()
    (code / "bricks").symlink_to(Path(__file__).resolve().parents[1])
    paths = [str(code), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if freed.value:
        of_user = environment.get(TUNABLES)
        environment[TUNABLES] = ":".join(filter(None, (*freed.value, of_user)))
    return environment


def _wait(readable: list[int], writable: list[int], deadline: float, timeout_s: float) -> None:
    """Wait until a pipe is ready; :class:`WorkerDied` after the ``deadline``."""
    left = deadline - time.monotonic()
    if left > 0:
        ready = select.select(readable, writable, [], left)
        if ready[0] or ready[1]:
            return
    raise WorkerDied(f"it did not finish within {timeout_s:.0f} s")
