"""One timing at a time: runs on the same host that time at once would slow each other down.

A process locks a file in each of a few fixed folders that it can write to, always in the same
order, so that two processes exclude each other if they share at least one of these folders. Batch
jobs, services and containers often have a private ``/tmp``, and some have a private ``/dev/shm`` or
a read-only ``/run``; they seldom have all of these. The environment has no say: ``TMPDIR`` and
``XDG_RUNTIME_DIR`` differ between the jobs of one user. An abstract Unix socket would need no
folder, but exists on Linux only, is private to a network namespace, and any other user of the host
could bind it and block everybody.

The operating system releases the locks of a process that is killed. The lock is per user: it does
not wait for what others run on the same host. Must not know what is timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from bricks.errors import WorkerError
from bricks.measure.campaign_result import Wait
from bricks.store.owners import process_name

# In the order in which they are locked.
FOLDERS: tuple[Path, ...] = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))

_POLL_S = 0.2

# Whether the caller has the lock already: nested callers lock once.
_owned: ContextVar[bool] = ContextVar("_owned", default=False)


@contextmanager
def timing_lock(on_wait: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Hold this host's timing lock; ``on_wait`` is called once if another process has it.

    It gets a message for people, which names that process. A caller that has the lock already
    continues at once. Raises :class:`~bricks.errors.WorkerError` where a lock file cannot be
    opened.
    """
    if _owned.get():
        yield
        return
    with _locked(on_wait):
        before = _owned.set(True)
        try:
            yield
        finally:
            _owned.reset(before)


@contextmanager
def _locked(on_wait: Callable[[str], None]) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks on this platform: the user is the only guard
        yield
        return
    waited = False
    locked: set[tuple[int, int]] = set()
    with ExitStack() as opened:
        # This user's lock file in each folder that can be written to; in the last, if none can.
        writable = [folder for folder in FOLDERS if os.access(folder, os.W_OK | os.X_OK)]
        for folder in writable or FOLDERS[-1:]:
            descriptor = _open(folder / f"bricks-timing-{os.getuid()}.lock")
            opened.callback(os.close, descriptor)
            status = os.fstat(descriptor)
            file = status.st_dev, status.st_ino
            if file in locked:  # two of the folders are one, by a link or a mount
                continue
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waited:
                        text = os.pread(descriptor, 16, 0)  # its owner writes its number into it
                        process = process_name(int(text)) if text.isdigit() else "another process"
                        on_wait(Wait(process, ", which is measuring on this host"))
                    waited = True
                    time.sleep(_POLL_S)
            locked.add(file)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield


def _open(path: Path) -> int:
    """The file's descriptor; the file is made if there is none."""
    try:
        # Any user may put a link into a folder that all can write to: it is not followed.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise WorkerError(f"the lock file {path} cannot be opened: {exc.strerror}") from exc
