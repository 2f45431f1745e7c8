from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from pages import DOCS, RESEARCH, ROOT

import bricks

PAGES = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "guides").glob("*.md"))]
PAGES += sorted(RESEARCH.glob("*.md"))
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
WRITTEN += [ROOT / "models" / "README.md", ROOT / "notebooks" / "README.md"]

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
# A measured figure, and what may be named as its source: a script, a command, the module of a rule,
# or one session.
_FIGURE = re.compile(
    r"(?<![\w.`#])(?!95 %)\d[\d.,]* (?:ms|µs|s|%|GB/s|GB|MB|seconds?|minutes?|hours?|times)(?!\w)"
)
_SOURCE = re.compile(
    r"benchmarks/\w+\.py|`make [a-z-]+`|`bricks [a-z]+[ `]|[\w/]+/\w+\.py`|tests/\w+"
    r"|[Mm]easured once"
)


def prose(text: str) -> str:
    """A page without its blocks of code, in which nothing is a link or a heading."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return "".join("-" if c == " " else c for c in shown if c.isalnum() or c in " -_")


@cache
def anchors(page: Path) -> frozenset[str]:
    found: list[str] = []
    for heading in _HEADING.findall(prose(page.read_text(encoding="utf-8"))):
        name = slug(heading)
        again = sum(1 for other in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
        found.append(f"{name}-{again}" if again else name)
    return frozenset(found)


def links(page: Path) -> list[tuple[Path, str]]:
    """The file and the anchor of each relative link of a page."""
    found = []
    for target in _LINK.findall(prose(page.read_text(encoding="utf-8"))):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = unquote(target).partition("#")
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


def test_links_lead_somewhere_on_github() -> None:
    followed = 0
    for page in WRITTEN:
        for target, anchor in links(page):
            assert target.is_relative_to(ROOT), f"{page.name} links out of the repository: {target}"
            assert target.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in anchors(target), f"{page.name} links to {target.name}#{anchor}"
            followed += 1
    assert followed > 300


@pytest.mark.parametrize("start", [DOCS / "index.md", ROOT / "README.md"], ids=["index", "README"])
def test_every_page_is_reached(start: Path) -> None:
    seen, left = set(), [start]
    while left:
        page = left.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            left += [target for target, _ in links(page)]
    assert set(PAGES) <= seen


@pytest.mark.parametrize("page", sorted(RESEARCH.glob("[a-z]*.md")), ids=lambda page: page.stem)
def test_research_begins_with_its_conclusion(page: Path) -> None:
    _, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert first.startswith("**Conclusion.** ")


def test_every_measured_figure_stands_beside_its_source() -> None:
    """In a page that a script writes, its head names the script; elsewhere each section does."""
    count = 0
    for page in (ROOT / "README.md", *PAGES):
        head, *sections = re.split(r"(?m)^(?=#{2,3} )", prose(page.read_text(encoding="utf-8")))
        if re.search(
            r"Written by `(benchmarks/\w+\.py|make \w+)`|^Measured once", head, re.MULTILINE
        ):
            continue
        for section in (head, *sections):
            figures = _FIGURE.findall(section)
            at = (page.name, section.splitlines()[0], figures) if figures else ()
            assert not figures or _SOURCE.search(section), at
            count += len(figures)
    assert count > 100


def test_what_is_named_as_a_source_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"test", "docs"} <= set(targets)
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text(encoding="utf-8")
        for script in re.findall(r"\b((?:benchmarks|tests|models)/[\w/]+\.py)\b", text):
            assert (ROOT / script).exists(), (page.name, script)
        for module in re.findall(r"`((?:[a-z]+/)+\w+\.py)`", text):
            places = (ROOT / module, ROOT / "bricks" / module)
            assert any(place.exists() for place in places), (page.name, module)
        for target in re.findall(r"`make ([a-z-]+)", text):
            assert target in targets, (page.name, target)


class Page(HTMLParser):
    """What a built page links to and loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-E"]
    command += ["-b", "html", "-d", str(folder / "trees"), str(DOCS), str(folder / "html")]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # Whatever is not on this machine cannot be had.
    nowhere = "http://127.0.0.1:9"
    variables = dict(os.environ, PYTHONPATH=paths, http_proxy=nowhere, https_proxy=nowhere)
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    found = {}
    for path in site.rglob("*.html"):
        found[path] = page = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_every_page_is_built(built: dict[Path, Page], site: Path) -> None:
    copies = Path("project", "research")  # whose names are in lower case
    expected = {
        page.relative_to(DOCS) if DOCS in page.parents else copies / page.name.lower()
        for page in PAGES
    }
    assert {site / page.with_suffix(".html") for page in expected} <= built.keys()


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(built: dict[Path, Page]) -> None:
    for path, page in built.items():
        for link in page.links:
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path.name} links to {link}"
            if anchor and target in built:
                assert anchor in built[target].ids, f"{path.name} links to {link}"


@pytest.mark.slow
def test_nothing_of_the_site_is_on_a_network(built: dict[Path, Page], site: Path) -> None:
    for path, page in built.items():
        for load in page.loads:
            assert not re.match(r"(https?:)?//", load), f"{path.name} loads {load}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", text), style


@pytest.mark.slow
def test_every_public_name_is_in_the_built_reference(built: dict[Path, Page], site: Path) -> None:
    ids = built[site / "api.html"].ids
    assert {f"bricks.{name}" for name in bricks.__all__} <= ids
    base = ("Backend", "ExecutedGraph", "BindableModel", "BoundModel", "Binding")
    assert {f"bricks.backends.base.{name}" for name in base} <= ids
    assert {f"bricks.backends.offer.{name}" for name in ("Offer", "BackendInfo")} <= ids


def test_every_public_name_has_its_place_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    places = re.findall(r"^\.\. (?:auto|py:)\w+:: bricks\.(\w+)$", text, re.MULTILINE)
    assert set(bricks.__all__) <= set(places)
    assert ".. automodule:: bricks.backends.base\n" in text


def test_every_public_name_is_explained() -> None:
    """By a docstring of its own, not the one that Python makes for a dataclass; methods, too."""
    for name in bricks.__all__:
        found = getattr(bricks, name)
        if not (inspect.isclass(found) or inspect.isfunction(found)):
            continue  # a constant or an alias has none; the reference says what it is
        assert inspect.getdoc(found), name
        assert not (found.__doc__ or "").startswith(f"{name}("), name
        if inspect.isclass(found):
            members = vars(found).items()
            own = {n: m for n, m in members if inspect.isfunction(m) or isinstance(m, property)}
            assert all(inspect.getdoc(m) for n, m in own.items() if n[:1] != "_"), name
