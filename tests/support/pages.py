"""Pages of the documentation as tests see them: blocks of code, and what a block shows.

Blocks take long to run: `make test` runs those of pages that changed since they last ran. `python
tests/support/pages.py` keeps a record of what has run, after all tests have passed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RESEARCH = ROOT / "research"
NOTEBOOKS = ROOT / "notebooks"
RECORD = Path(__file__).parent / "recorded" / "pages.json"

# Pages whose blocks tests run.
GUIDES = tuple(sorted((DOCS / "guides").glob("*.md")))
RUN = (
    *(ROOT / "README.md", DOCS / "tutorial.md", RESEARCH / "construction.md"),
    *(DOCS / "accuracy.md", DOCS / "published.md", DOCS / "backends.md", DOCS / "api.md"),
    *(guide for guide in GUIDES if "```console" in guide.read_text(encoding="utf-8")),
)

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


def script(name: str) -> ModuleType:
    """The module of a program that writes a page: ``docs/NAME.py``."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def lines(text: str) -> list[str]:
    """Lines that show something, without spaces at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def shown(page: Path) -> dict[str, list[str]]:
    """The lines that a page has below commands, by the command."""
    pairs = pairwise(blocks(page))
    return {
        command.lines[-1]: lines(answer.text)
        for command, answer in pairs
        if (command.language, answer.language) == ("console", "text")
    }


def digest(page: Path) -> str:
    """SHA-256 of all that a page runs and shows; other text is no part."""
    shown = (block for block in blocks(page) if not block.language.startswith("{"))
    parts = [f"{block.language} {block.file}\n{block.text}" for block in shown]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def recorded() -> dict[str, str]:
    """The digest that each page had when all tests last passed, by its path from the root."""
    found: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def slow_unless_changed(page: Path) -> pytest.MarkDecorator:
    """A mark for tests that run a page: slow, while the page is as it last passed them."""
    passed = recorded().get(page.relative_to(ROOT).as_posix())
    return pytest.mark.slow if passed == digest(page) else pytest.mark.skipif(False, reason="")


if __name__ == "__main__":
    digests = {page.relative_to(ROOT).as_posix(): digest(page) for page in RUN}
    RECORD.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
