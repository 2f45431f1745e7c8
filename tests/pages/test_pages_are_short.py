"""Users read little: their pages are short, each and together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, GUIDES, ROOT

REFERENCE = {"commands.md", "api.md"}
DEVELOPERS = {"architecture.md", "formats.md", "backends.md", "adding-a-study.md"}
PAGES = (*sorted(DOCS.glob("*.md")), *GUIDES)
USERS = tuple(page for page in PAGES if page.name not in REFERENCE | DEVELOPERS)

_UNREAD = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\([^)\s]+\)")


def word_count(page: Path) -> int:
    """Words that people read: no code, comments or addresses of links."""
    text = _LINK.sub("]", _UNREAD.sub("", page.read_text(encoding="utf-8")))
    return len(re.findall(r"\b\w\S*", text))


def test_users_have_little_to_read() -> None:
    assert sum(map(word_count, USERS)) <= 15_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_is_long(page: Path) -> None:
    assert page.name in REFERENCE or word_count(page) <= 1_800


def test_the_readme_is_shorter_still() -> None:
    assert word_count(ROOT / "README.md") <= 650


def test_every_guide_is_listed() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert all(f"](guides/{guide.name})" in index for guide in GUIDES)
