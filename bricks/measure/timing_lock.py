"""One timing at a time: runs on the same host that time at once would slow each other down.

A lock file, released by the operating system even if its holder is killed. It is per user: what
others run on the same host is not waited for.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bricks.errors import WorkerError

# What people are told meanwhile.
WAITING = "waiting for another process that is measuring on this host"


@contextmanager
def timing_lock(on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold this host's right to time; ``on_wait`` is called once if another process has it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this platform: the user is the only guard
        yield
        return
    path = Path(tempfile.gettempdir()) / f"bricks-timing-{os.getuid()}.lock"
    try:
        # Anybody may put a link in the folder of temporary files: it is not followed.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise WorkerError(f"the lock file {path} cannot be opened: {exc.strerror}") from exc
    with open(descriptor, "r+b") as handle:
        waited = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    on_wait()
                waited = True
                time.sleep(0.2)
        yield
