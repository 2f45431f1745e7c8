"""The first line about systems: which one this host is, and how many are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bricks.errors import printable
from bricks.report.answers.words import verb


def systems_text(here: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: ``This host is lab, which is known; 3 systems are known, 2 of them published``.

    ``here`` is the name of this host, ``rows`` are the facts of the known systems.
    """
    this_host = f"This host is {printable(here)}"
    if not rows:
        return f"{this_host}; no system is known yet: 'bricks measure MODEL' makes it known."
    known = any(row["this_host"] for row in rows)
    measured = "which is known" if known else "which is not measured yet"
    count, published = len(rows), sum(row["published"] for row in rows)
    systems = f"{count} {verb(count, 'system is', 'systems are')} known"
    return f"{this_host}, {measured}; {systems}, {_published(count, published)}."


def _published(count: int, published: int) -> str:
    if published == count:
        return "published" if count == 1 else "all of them published"
    return f"{published or 'none'} of them published" if count > 1 else "not published"
