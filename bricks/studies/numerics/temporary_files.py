"""Temporary files for workers, in a folder that is removed after the comparison."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

from bricks.closing import Closing


class TemporaryFiles(Closing):
    """A new folder; use it as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True)
        self._numbers = count()

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        self._folder.cleanup()

    def new(self, suffix: str) -> Path:
        """The name of a file that does not exist yet."""
        return Path(self._folder.name) / f"{next(self._numbers)}{suffix}"
