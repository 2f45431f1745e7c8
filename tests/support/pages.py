"""Pages of the documentation as tests see them: blocks of code, and what a block shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FILE = re.compile(r"`([\w.-]+\.(?:py|toml))`.*:$")


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    ``file`` is the name of the file that it is to be put into, if the line before says so.
    """

    language: str
    text: str
    file: str | None

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def blocks(page: Path) -> list[Block]:
    """The blocks between fences of a page, in order."""
    found: list[Block] = []
    language: str | None = None
    before, held = "", []
    for line in page.read_text(encoding="utf-8").splitlines():
        if language is None and line.startswith("```"):
            language, held = line.removeprefix("```"), []
        elif line == "```":
            named = _FILE.search(before)
            text = "".join(f"{each}\n" for each in held)
            found.append(Block(language or "", text, named[1] if named else None))
            language = None
        elif language is not None:
            held.append(line)
        elif line.strip():
            before = line
    assert language is None, f"{page} ends within a block"
    return found


def commands(page: Path) -> list[str]:
    """All lines that a reader is to type."""
    return [line for block in blocks(page) if block.language == "console" for line in block.lines]
