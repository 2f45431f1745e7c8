"""Where a cache lies: a folder with a file of SQLite, or the URL of a database.

Must not open anything.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "bricks.sqlite"


def is_url(location: str | Path) -> bool:
    """Whether a cache is named by the URL of its database."""
    return isinstance(location, str) and "://" in location


def file_of(location: str | Path) -> Path:
    """The database file in a folder."""
    return Path(os.path.expanduser(location)) / FILE_NAME  # pathlib's own raises for unknown users


def exists(location: str | Path) -> bool:
    """Whether a folder has a database file; creates nothing. Always true for URLs."""
    if is_url(location):
        return True
    try:
        return file_of(location).exists()
    except OSError:  # no permission, for example: opening it reports the error
        return True
