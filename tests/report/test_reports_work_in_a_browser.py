"""A report is looked at in a real browser, without a network, wide and narrow, light and dark."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import branching_net, conv_net, mlp, save

from bricks.cli.main import run
from bricks.closing import Closing

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# npm install --prefix .venv axe-core
_AXES = (
    Path(os.environ.get("AXE_CORE", "")),
    ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js",
)
AXE = next((path for path in _AXES if path.is_file()), None)
HOSTILE = "<img src=x onerror=window.pwned=2>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium to look at pages with: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of one model and of many, each on two targets."""
    folder = tmp_path_factory.mktemp("report")
    common = ("--runtime", "fake", "--cache", folder / "cache")
    models = [
        save(conv_net(), folder, "conv.onnx"),
        save(branching_net(), folder, "branching.onnx"),
        save(mlp(widths=(8, 64, 10)), folder, f"{HOSTILE}.onnx"),
        *(save(mlp(widths=(8, 16 * n, 10)), folder, f"mlp{n}.onnx") for n in range(1, 31)),
    ]
    for words in (
        ("compare", *models[:4], "--threads", 1),
        ("measure", *models, "--threads", 1),
        ("measure", *models[:12], "--threads", 2),
        ("report", "--out", folder / "many.html"),
        ("report", models[0], "--out", folder / "one.html"),
    ):
        assert run([*map(str, (*words, *common))]) == 0
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit(Closing):
    """A page, its requests, and its messages."""

    def __init__(self, browser: Any, path: Path, hash_: str = "", **context: Any) -> None:
        self._context = browser.new_context(offline=True, **context)
        self.page = self._context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{path.as_uri()}{hash_}")

    def close(self) -> None:
        self._context.close()

    def open_all(self) -> None:
        """Open all details."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


PAGES = pytest.mark.parametrize("name", ["one.html", "many.html"])


@PAGES
def test_a_page_requests_nothing_and_logs_nothing(browser: Any, folder: Path, name: str) -> None:
    with Visit(browser, folder / name) as visit:
        visit.open_all()
        assert visit.messages == []
        assert visit.requests == [(folder / name).as_uri()]
        assert visit.page.evaluate("window.pwned") is None
        assert visit.page.locator("img").count() == 0


@PAGES
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(
    browser: Any, folder: Path, name: str, width: int
) -> None:
    with Visit(browser, folder / name, viewport={"width": width, "height": 800}) as visit:
        visit.open_all()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        cut = visit.page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
            ".map(e => e.getAttribute('aria-label'))"
        )
        assert width < 1280 or cut == []
        latency = visit.page.locator("main td.n").first
        assert latency.bounding_box()["x"] + latency.bounding_box()["width"] <= width


@pytest.mark.skipif(AXE is None, reason="no axe-core: npm install --prefix .venv axe-core")
@PAGES
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_readers_of_screens_find_no_barrier(
    browser: Any, folder: Path, name: str, scheme: str, width: int
) -> None:
    assert AXE is not None
    size = {"width": width, "height": 800}
    context = {"color_scheme": scheme, "viewport": size, "bypass_csp": True}
    with Visit(browser, folder / name, **context) as visit:
        visit.open_all()
        visit.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = visit.page.evaluate("axe.run()")["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found] == []


def test_tables_are_sorted_and_searched_with_the_keyboard(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "many.html") as visit:
        table = visit.page.locator("table.searchable").first

        def column(number: int) -> list[str]:
            return table.locator(f"tbody tr:visible > :nth-child({number})").all_text_contents()

        names = column(1)
        button = table.locator("thead button", has_text=re.compile("^model$"))
        button.focus()
        visit.page.keyboard.press("Enter")
        assert column(1) == sorted(names, key=visit_key(visit))
        assert button.locator("..").get_attribute("aria-sort") == "ascending"
        button.press("Enter")
        assert column(1) == sorted(names, key=visit_key(visit))[::-1]
        box = visit.page.get_by_role("searchbox").first
        box.fill("conv")
        assert column(1) == ["conv"]
        box.fill("no such model")
        assert column(1) == []


def visit_key(visit: Visit) -> Any:
    """A sort key: names as the browser compares them."""
    script = "names => [...names].sort((a, b) => a.localeCompare(b))"
    names = visit.page.locator("table.searchable").first.locator("tbody th").all_text_contents()
    order = {name: n for n, name in enumerate(visit.page.evaluate(script, names))}
    return order.__getitem__


def test_a_link_opens_the_model_that_it_names(browser: Any, folder: Path) -> None:
    with Visit(browser, folder / "many.html", "#m2") as visit:
        assert visit.page.locator("#m2").evaluate("details => details.open")
        assert visit.page.locator("details[open]").count() == 1


def test_it_is_dark_where_people_want_that_and_light_on_paper(browser: Any, folder: Path) -> None:
    def lightness(visit: Visit) -> float:
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(float, re.findall(r"[\d.]+", paper)[:3])) / 3 / 255

    with Visit(browser, folder / "many.html", color_scheme="dark") as visit:
        assert lightness(visit) < 0.2
        visit.page.emulate_media(media="print")
        assert lightness(visit) == 1
        assert not visit.page.get_by_role("searchbox").first.is_visible()
        assert visit.page.pdf().startswith(b"%PDF")
