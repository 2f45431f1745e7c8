"""Markdown: tables, and parts of pages that stand between two comments with their name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

_RULES = {"l": "---", "r": "--:"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "l") -> str:
    """A table; ``align`` has ``l`` or ``r`` for each of the first columns, the others are ``r``."""
    rules = [_RULES[side] for side in align.ljust(len(head), "r")]
    first = f"| {' | '.join(head)} |".replace("|  |", "| |")
    body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, f"|{'|'.join(rules)}|", *body])


def paragraphs(*texts: str) -> str:
    """The texts that are not empty, with an empty line between any two."""
    return "\n\n".join(text for text in texts if text)


def listing(rows: Iterable[Any]) -> str:
    """A table of dataclass objects: a row for each, a column for each number or text in it."""
    flat = [dict(_scalars(row)) for row in rows]
    heads = list(dict.fromkeys(name for row in flat for name in row))
    return table(heads, ([str(row.get(name, "")) for name in heads] for row in flat))


def _scalars(row: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of the fields that are single values, those of ``case`` first."""
    for field in fields(row):
        value = getattr(row, field.name)
        if is_dataclass(value) and field.name == "case":
            yield from _scalars(value)
        elif isinstance(value, str | int | float):
            yield field.name, value


def with_parts(text: str, script: str, parts: Mapping[str, str]) -> str:
    """``text`` of a page with other ``parts``, by name.

    A part is the lines between ``<!-- NAME: written by SCRIPT -->`` and ``<!-- /NAME -->``, or a
    figure within a line, between ``<!-- NAME -->`` and ``<!-- /NAME -->``, which may come again.
    Raises :class:`ValueError` where the page does not have it.
    """
    for name, content in parts.items():
        begin, end = f"<!-- {name}: written by {script} -->", f"<!-- /{name} -->"
        body = content.strip("\n")
        lines = f"{begin}\n{body}\n{end}" if body else f"{begin}\n{end}"
        forms = {f"<!-- {name} -->": f"<!-- {name} -->{content}{end}", f"{begin}\n": lines}
        found = {
            (old, new)
            for start, new in forms.items()
            for old in re.findall(f"{re.escape(start)}.*?{re.escape(end)}", text, re.DOTALL)
        }
        if len(found) != 1 or text.count(begin) > 1:
            raise ValueError(f"the page must have one part between {begin} and {end}")
        text = text.replace(*found.pop())
    return text
