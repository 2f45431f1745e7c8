"""Files of pages that commands write: checked before the work, written whole or not at all."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from bricks.errors import BricksError, UsageError


class PageError(BricksError):
    """A page cannot be written."""


def check_page(out: Path) -> None:
    """Raise an error before the work if ``out`` could not be written after it."""
    from bricks.report.page import check_renderer

    check_renderer()
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}: make it first")


def today() -> str:
    """The date in UTC, such as ``2026-01-31``."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def write_page(path: Path, page: str) -> None:
    """Write the whole file or nothing; an existing file stays until the end."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(page, encoding="utf-8")
        partial.replace(path)
    except OSError as exc:
        partial.unlink(missing_ok=True)
        raise PageError(f"{path} cannot be written ({exc.strerror}): give another --out") from exc
