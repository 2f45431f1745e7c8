"""What scripts write into pages: each part stands between two comments with its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def ratios_of(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Estimate over measured latency of ``rows`` with an ``estimate_s`` and a ``measured_s``."""
    return [row["estimate_s"] / row["measured_s"] for row in rows]


def put(page: Path, script: str, parts: Mapping[str, str]) -> None:
    """Write ``parts`` into ``page``, by name; see :func:`with_parts`."""
    text = page.read_text(encoding="utf-8")
    page.write_text(with_parts(text, script, parts), encoding="utf-8")


def with_parts(text: str, script: str, parts: Mapping[str, str]) -> str:
    """``text`` of a page with other ``parts``, by name, of the file ``script`` of this project.

    Raises :class:`ValueError` where the page does not have such a part exactly once.
    """
    own = Path(script).resolve().relative_to(ROOT)
    for name, content in parts.items():
        begin, end = f"<!-- {name}: written by {own} -->", f"<!-- /{name} -->"
        if text.count(begin) != 1 or end not in text.partition(begin)[2]:
            raise ValueError(f"the page must have one part between {begin} and {end}")
        before, _, rest = text.partition(begin)
        body = "\n".join(filter(None, (begin, content.strip("\n"), end)))
        text = before + body + rest.partition(end)[2]
    return text
