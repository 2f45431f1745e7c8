"""Derived files: what was computed from other files, and can be computed again at any time.

They lie in the user's cache folder, or in ``BRICKS_DERIVED``, and may be deleted. Whoever reads one
must not believe it unless it has a checksum. Must not know what files contain.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# Files that nobody has asked for in so many seconds are removed when another is written next to
# them; use is noted once a day.
_KEPT_S, _NOTED_S = 60 * 24 * 3600.0, 24 * 3600.0


def folder(kind: str) -> Path:
    """The folder of derived files of one kind."""
    chosen = os.environ.get("BRICKS_DERIVED")
    if chosen:
        return Path(chosen).expanduser() / kind
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(home)) / "bricks" / kind


def keep(content: bytes, path: Path) -> bool:
    """Write a derived file at once or not at all; whether it was written.

    Unused files next to it are removed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(part, path)
        except OSError:
            os.unlink(part)
            raise
    except OSError:
        return False
    with suppress(OSError):  # another process may remove them at the same moment
        for other in path.parent.iterdir():
            if time.time() - other.stat().st_mtime > _KEPT_S:
                other.unlink()
    return True


def note_use(path: Path) -> None:
    """Note that a derived file is in use."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _NOTED_S:
            os.utime(path)
