"""Imports what the program of a portable suite has measured.

Must not know how it was measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import ModelError, StoreError, first_line
from bricks.suite.portable import RunResults

if TYPE_CHECKING:
    from bricks.store import Store
    from bricks.store.merge import Merged, Mismatch


def merge_run(store: Store, path: Path, mismatch: Mismatch) -> Merged:
    """Merge a file of results: all of it, or none.

    Raises :class:`SuiteError` for a file that was changed, and :class:`StoreError` for one whose
    records cannot be true.
    """
    results = RunResults.read(path)
    try:
        return store.contents.merge_records(results.records(), mismatch)
    except (ModelError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        problem = f"it lacks {exc}" if isinstance(exc, KeyError) else first_line(exc)
        raise StoreError(f"{path} is refused, nothing was imported: {problem}") from exc
