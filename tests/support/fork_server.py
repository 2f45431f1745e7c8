"""Processes that begin as forks of one that has imported everything, in place of starting anew.

Importing takes most of the time of a short command or of a worker. A server is
one process without threads of its own; it forks for each request, and the fork becomes what a new
process would have been: with the arguments, the environment, the folder and the open files of the
request. What depends on how a process starts, such as hashes of texts or settings of the
allocator, is for processes that really start.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import psutil

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]

# What a fork may need is imported before: commands, the worker, and the runtime of most tests.
IMPORTED = (
    "bricks.backends.fake.backend",
    "bricks.backends.onnxruntime.backend",
    "bricks.cli.cache",
    "bricks.cli.compare",
    "bricks.cli.main",
    "bricks.cli.measure",
    "bricks.cli.predict",
    "bricks.cli.systems",
    "bricks.measure.worker.worker",
    "bricks.api.bench",
)

WORKER = "bricks.measure.worker.worker:main"

_MESSAGE_BYTES = 1 << 20
_FREE_FDS = 200  # open files of a request are moved up here before they get their numbers


class ForkServer:
    """Starts forks. Its process begins with the first of them, and ends with ours at the latest."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._beginning = threading.Lock()  # threads may ask for their first forks at once

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT)))},
            )
        return ours

    def start(
        self, entry: str, arguments: Sequence[str], env: Mapping[str, str], fds: Mapping[int, int]
    ) -> ForkedProcess:
        """Call ``entry`` (``module:function``) in a fork, in a session of its own.

        ``fds`` are its open files: our number of each by the number that it has there.
        """
        with self._beginning:
            self._socket = self._socket or self._begin()
        status, theirs = os.pipe()
        request = [entry, list(arguments), dict(env), os.getcwd(), list(fds)]
        message = json.dumps(request).encode()
        socket.send_fds(self._socket, [message], [theirs, *fds.values()])
        os.close(theirs)
        return ForkedProcess(status)

    def worker(
        self,
        *,
        env: Mapping[str, str],
        stderr: IO[bytes],
        pass_fds: Sequence[int],
        entry: str = WORKER,
        **_piped: object,
    ) -> ForkedProcess:
        """A worker, as ``subprocess.Popen`` would start it with pipes that are not buffered."""
        (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
        fds = {0: stdin, 1: stdout, 2: stderr.fileno(), **{fd: fd for fd in pass_fds}}
        process = self.start(entry, ["worker"], env, fds)
        for fd in (stdin, stdout):
            os.close(fd)
        process.stdin = os.fdopen(ours_in, "wb", buffering=0)
        process.stdout = os.fdopen(ours_out, "rb", buffering=0)
        return process

    def close(self) -> None:
        """End the server; forks go on."""
        if self._socket is not None:
            self._socket.close()
            self._process.wait()


class ForkedProcess:
    """A fork, with the parts of ``subprocess.Popen`` that its users need."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._one_at_a_time = threading.Lock()
        self._said = b""
        self.returncode: int | None = None
        self.stdin: Any = None
        self.stdout: Any = None
        self._read(None)
        self.pid = int(self._said)
        self._said = b""

    def _read(self, timeout_s: float | None) -> bool:
        """Read the next line of what is told of the process; False if it takes too long."""
        while not self._said.endswith(b"\n"):
            if not select.select([self._status], [], [], timeout_s)[0]:
                return False
            said = os.read(self._status, 1)
            assert said, "a fork's keeper has died"
            self._said += said
        return True

    def poll(self) -> int | None:
        """The exit status, or None while it runs; minus the signal, if one ended it."""
        with self._one_at_a_time:
            if self.returncode is None and self._read(0):
                self.returncode = int(self._said)
                os.close(self._status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once there is one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(0.005)  # other threads may ask meanwhile
        return status

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def children() -> list[psutil.Process]:
    """What this process has started and what lives: also as forks, of which the server is none."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if __file__ in child.cmdline():
                found += [fork for keeper in child.children() for fork in keeper.children()]
            else:
                found.append(child)
    return [each for each in found if _runs(each)]


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


# The rest runs in the server and in its forks.


def _serve(connection: socket.socket) -> None:
    for module in IMPORTED:
        import_module(module)
    # The device of the fake runtime is hot at once.
    import_module("bricks.backends.heating").HEATED_S = 0.0
    gc.collect()
    gc.freeze()  # what collecting garbage would touch is not copied into each fork
    while True:
        message, fds, *_ = socket.recv_fds(connection, _MESSAGE_BYTES, 16)
        if not message:
            return
        keeper = os.fork()
        if not keeper:
            connection.close()
            _keep(message, fds)
            os._exit(0)
        for fd in fds:
            os.close(fd)
        _reap()


def _reap() -> None:
    """Let keepers that have ended go."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return


def _keep(message: bytes, fds: Sequence[int]) -> None:
    """Fork the process itself, and tell its number and how it ended."""
    status, *others = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FREE_FDS) for fd in fds)
    for fd in fds:
        os.close(fd)
    child = os.fork()
    if not child:
        os.close(status)
        _become(message, others)
    for fd in others:
        os.close(fd)
    os.write(status, b"%d\n" % child)
    _, ended = os.waitpid(child, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))


def _become(message: bytes, fds: Sequence[int]) -> None:
    code: object = 1
    try:
        entry, arguments, env, cwd, numbers = json.loads(message)
        os.setsid()
        os.chdir(cwd)
        for fd, number in zip(fds, numbers, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv[:] = arguments
        paths = env.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [path for path in paths if path and path not in sys.path]
        module, _, function = entry.partition(":")
        code = getattr(import_module(module), function)()
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
