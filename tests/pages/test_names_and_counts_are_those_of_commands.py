"""Pages call systems as ``bricks systems`` does, and count the zoo as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Here
from pages import DOCS, NOTEBOOKS, RESEARCH, ROOT, script

from bricks.store import Published
from bricks.store.published_index import read_index
from bricks.system.cards import cards
from bricks.zoo import decoders, entries, programs

write_published = script("write_published")
PUBLISHED = ROOT / "cache" / "published"
README = ROOT / "README.md"
PAGES = (
    *(README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "models" / "README.md"),
    *(NOTEBOOKS / "README.md", *sorted(DOCS.glob("*.md"))),
    *(*sorted((DOCS / "guides").glob("*.md")), *sorted(RESEARCH.glob("*.md"))),
)
PICTURES = (
    *sorted((DOCS / "figures").glob("*.svg")),
    *sorted((RESEARCH / "figures").glob("*.svg")),
    *sorted(NOTEBOOKS.glob("*.ipynb")),
)

# As a host is called by default, after its processor and cores, or after its GPU.
SYSTEM = re.compile(r"\b(?:(?:amd|intel)-[a-z0-9-]+-\d+c|nvidia-[a-z0-9-]+[a-z0-9])\b")

KINDS = {"ONNX models": entries(), "PyTorch programs": programs(), "decoders": decoders()}
COUNTS = {
    "shipped models": sum(map(len, KINDS.values())),
    **{kind: len(of) for kind, of in KINDS.items()},
}
COUNTED = re.compile(rf"\b(\d+) ({'|'.join(COUNTS)})\b")


def prose(page: Path) -> str:
    """The text of a page on one line."""
    return " ".join(page.read_text(encoding="utf-8").split())


def counted() -> Iterator[tuple[str, str, int]]:
    """Each page that counts a kind of models, the kind and the number."""
    for page in PAGES:
        for number, kind in COUNTED.findall(prose(page)):
            yield page.name, kind, int(number)


def test_pages_call_systems_as_the_command_lists_them() -> None:
    listed = {system.name for system in Published(PUBLISHED).systems.all()}
    unmeasured = {"-".join(card.name.lower().split()) for card in cards()}
    known = listed | unmeasured | {*write_published.UNPUBLISHED}
    known |= {f"{name}-profiled" for name in unmeasured}
    found = {
        str(page.relative_to(ROOT)): {*SYSTEM.findall(prose(page))} for page in (*PAGES, *PICTURES)
    }
    assert {page: names - known for page, names in found.items() if names - known} == {}
    assert listed <= set().union(*found.values())
    assert {*SYSTEM.findall(prose(README))} <= listed


def test_the_page_of_published_systems_is_written_from_their_index() -> None:
    committed = write_published.PAGE.read_text(encoding="utf-8")
    assert write_published.page(read_index(PUBLISHED)) == committed


def test_pages_count_the_zoo_as_it_is() -> None:
    found = list(counted())
    assert [each for each in found if each[2] != COUNTS[each[1]]] == []
    assert {kind for page, kind, _ in found if page == README.name} == COUNTS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_counts_the_zoo_in_other_words(page: Path) -> None:
    """Which :func:`counted` would not find."""
    other = re.compile(r"zoo(?:'s| of) \d+ models|\d+ models of the zoo|\d+ zoo models")
    assert other.findall(prose(page)) == []


def test_the_list_of_the_zoo_counts_its_kinds(here: Here) -> None:
    last = here.plain("zoo", "list").out.splitlines()[-1]
    for kind, count in {**COUNTS, "models": COUNTS["shipped models"]}.items():
        assert kind == "shipped models" or f"{count} {kind}" in last
    assert here.plain("zoo", "list", "--framework", "mxnet").out.count(" ONNX models") == 1
