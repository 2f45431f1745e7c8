"""Pages in a real browser: upload, errors, phone, dark, keyboard alone, labels for readers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import ROOT
from factories import mlp, save
from web_models import open_batch
from web_server import Served, serving

from bricks.closing import Closing
from bricks.reading.read import read_model

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium to look at pages with: apt-get install chromium"
    ),
]
# npm install --prefix .venv axe-core
AXE = next(
    (
        path
        for path in (
            Path(os.environ.get("AXE_CORE", "")),
            ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js",
        )
        if path.is_file()
    ),
    None,
)


@pytest.fixture(scope="module")
def served(folder: Path, variables: dict[str, str]) -> Iterator[Served]:
    """A process of its own, as people start it."""
    with serving("--cache", folder / "cache", **variables) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit(Closing):
    """A page of the server, what it asked for, and what it complained of."""

    def __init__(self, browser: Any, served: Served, **context: Any) -> None:
        self.served = served
        self._context = browser.new_context(base_url=served.url, **context)
        self.page = self._context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def close(self) -> None:
        self._context.close()

    def upload(self, path: Path) -> str:
        """Upload a file; the digest of the model that is answered."""
        self.page.goto("/")
        self.page.set_input_files("#file", path)
        self.page.get_by_role("button", name="Tell me").click()
        self.page.wait_for_url(re.compile("/models/m1-"))
        return re.search(r"m1-[0-9a-f]{32}", self.page.url)[0]

    def pictures(self) -> None:
        """Go to where the time goes, and wait for the pictures."""
        self.page.get_by_role("link", name="Where the time goes").first.click()
        self.page.wait_for_function(
            "[...document.querySelectorAll('.chart, .graph')].every(e => e.querySelector('svg'))"
        )


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Visit]:
    with Visit(browser, served) as visit:
        yield visit


def large() -> onnx.ModelProto:
    """A model whose weights are most of it, with some of each kind that must stay."""
    proto = mlp(widths=(512, 2000, 300, 10))
    shape = onnx.numpy_helper.from_array(np.array([-1, 512], np.int64), "shape")
    proto.graph.initializer.append(shape)
    proto.graph.node.insert(0, onnx.helper.make_node("Reshape", ["x", "shape"], ["shaped"]))
    proto.graph.node[1].input[0] = "shaped"
    table = onnx.numpy_helper.from_array(np.ones((200, 10), np.float32), "table")
    proto.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=table))
    proto.graph.node.append(onnx.helper.make_node("MatMul", ["c", "y2"], ["z"]))
    proto.graph.node.insert(
        len(proto.graph.node) - 2, onnx.helper.make_node("Transpose", ["y"], ["y2"])
    )
    proto.graph.output.append(
        onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [200, 1])
    )
    return proto


def test_weights_stay_in_the_browser(visit: Visit, folder: Path) -> None:
    path = save(large(), folder, "large.onnx")
    digest = visit.upload(path)
    assert digest == read_model(path).digest
    assert path.stat().st_size > 5_000_000
    visit.page.goto("/")
    visit.page.set_input_files("#file", path)
    sent = visit.page.evaluate(
        """async () => {
            const { strip } = await import("/static/strip.js");
            return (await strip(document.getElementById("file").files[0])).size;
        }"""
    )
    assert 0 < sent < 40_000
    assert visit.complaints == []


def test_no_page_asks_anybody_else(visit: Visit, folder: Path) -> None:
    visit.upload(folder / "conv.onnx")
    visit.pictures()
    for path in ("/zoo", "/llm", "/training", "/systems"):
        visit.page.goto(path)
    visit.page.get_by_role("table").get_by_role("link").first.click()
    assert visit.complaints == []
    assert {url.startswith(visit.served.url + "/") for url in visit.asked} == {True}


def test_an_upload_that_is_no_model_is_explained(visit: Visit, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"\x00\x01\x02" * 50)
    visit.page.goto("/")
    visit.page.set_input_files("#file", wrong)
    visit.page.get_by_role("button", name="Tell me").click()
    playwright.expect(visit.page.locator("#said")).to_contain_text("wrong.onnx cannot be sent")
    assert visit.page.get_by_role("button", name="Tell me").is_enabled()
    wrong.write_bytes(b"\x12\x03abc")  # protobuf, but no graph
    visit.page.set_input_files("#file", wrong)
    visit.page.get_by_role("button", name="Tell me").click()
    playwright.expect(visit.page.locator("#state")).to_contain_text("it holds no graph")


def test_nothing_chosen_is_said(visit: Visit) -> None:
    visit.page.goto("/")
    visit.page.get_by_role("button", name="Tell me").click()
    playwright.expect(visit.page.locator("#said")).to_contain_text("Choose a file")


def test_a_file_can_be_dropped(visit: Visit, folder: Path) -> None:
    visit.page.goto("/")
    content = list((folder / "conv.onnx").read_bytes())
    visit.page.evaluate(
        """bytes => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "dropped.onnx"));
            document.body.dispatchEvent(
                new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        content,
    )
    visit.page.wait_for_url(re.compile("/models/m1-"))


def test_the_keyboard_suffices(visit: Visit) -> None:
    page = visit.page
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"

    def focus(selector: str) -> None:
        for _ in range(20):
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"no tab leads to {selector}")

    focus("#file")  # can be reached
    focus("#model")
    page.keyboard.type("squeezenet")
    page.keyboard.press("Escape")
    focus("#batch")
    page.keyboard.type("2")
    focus("form.ask button")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/models/m1-"))
    assert page.input_value("#batch") == "2"
    focus("#threads")


def test_a_bound_moves_over_the_bars_without_a_reload(visit: Visit, folder: Path) -> None:
    visit.upload(folder / "conv.onnx")
    page = visit.page
    heading = page.text_content("h1")
    assert "conv" in str(heading)
    end = float(page.get_attribute("ol.bars", "data-end") or 0)
    page.evaluate("window.stays = true")
    page.fill("#slo", f"{end:.6g}")
    assert int(page.text_content("[data-count=yes]") or 0) == page.locator("ol.bars > li").count()
    page.focus("#slide")
    page.keyboard.press("Home")
    assert page.text_content("[data-count=yes]") == "0"
    playwright.expect(page.locator("ol.bars .verdict.no").first).to_have_text("does not meet it")
    box = page.locator("svg.bar").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.up()
    assert float(page.input_value("#slo")) == pytest.approx(end / 2, rel=0.05)
    linked = page.input_value("#slo")
    page.wait_for_url(re.compile(rf"slo_ms={re.escape(linked)}$"))
    assert page.evaluate("window.stays")
    page.reload()
    assert page.input_value("#slo") == linked
    assert visit.complaints == []


def test_batch_and_threads_change_in_place(visit: Visit, folder: Path) -> None:
    digest = visit.upload(folder / "conv.onnx")
    page = visit.page
    page.evaluate("window.stays = true")
    page.select_option("#threads", "2")
    page.wait_for_url(re.compile("threads=2"))
    playwright.expect(page.locator("ol.bars > li")).to_have_count(1)
    page.fill("#batch", "3")
    page.keyboard.press("Tab")
    page.wait_for_url(lambda url: "/models/m1-" in url and digest not in url)
    assert "threads=2" in page.url
    assert page.evaluate("window.stays")
    assert visit.complaints == []


def test_open_axes_are_asked_for(visit: Visit, tmp_path: Path) -> None:
    visit.page.goto("/")
    visit.page.set_input_files("#file", save(open_batch(), tmp_path, "open.onnx"))
    visit.page.get_by_role("button", name="Tell me").click()
    visit.page.get_by_label("Batch (N)").fill("2")
    visit.page.get_by_role("button", name="Tell me").click()
    visit.page.wait_for_url(re.compile("/models/m1-"))
    assert visit.page.input_value("#batch") == "2"


@pytest.mark.parametrize("width", [320, 800])
def test_no_width_makes_a_page_scroll_sideways(
    browser: Any, served: Served, folder: Path, width: int
) -> None:
    with Visit(browser, served, viewport={"width": width, "height": 700}) as visit:
        page = visit.page
        for path in ("/", "/zoo", "/systems", "/llm", "/training"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        visit.upload(folder / "conv.onnx")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        visit.pictures()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_phone_shows_the_latency_first_and_every_field(
    browser: Any, served: Served, folder: Path
) -> None:
    with Visit(browser, served, viewport={"width": 390, "height": 844}) as visit:
        page = visit.page
        visit.upload(folder / "conv.onnx")
        for selector in ("h1", "#slo", "ol.bars .latency b"):
            playwright.expect(page.locator(selector).first).to_be_in_viewport(ratio=1)
        for path in ("/llm", "/training"):
            page.goto(path)
            fields = page.locator("form.study input, form.study select, form.study button")
            assert fields.count() > 5
            assert all(field.is_visible() for field in fields.all())


def test_without_scripts_the_zoo_still_answers(browser: Any, served: Served) -> None:
    with Visit(browser, served, java_script_enabled=False) as visit:
        visit.page.goto("/")
        visit.page.fill("#model", "squeezenet")
        visit.page.get_by_role("button", name="Tell me").click()
        visit.page.wait_for_url(re.compile("/models/m1-"))
        assert "squeezenet" in visit.page.text_content("h1")


def test_without_scripts_batch_threads_and_bound_are_a_form(
    browser: Any, served: Served, folder: Path
) -> None:
    with Visit(browser, served, java_script_enabled=False) as visit:
        page = visit.page
        digest = served.answers((folder / "conv.onnx").read_bytes(), name="conv")["digest"]
        page.goto(f"/models/{digest}")
        page.fill("#batch", "5")
        page.fill("#slo", "20")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url(lambda url: "/models/m1-" in url and digest not in url)
        assert page.input_value("#batch") == "5"
        assert page.input_value("#slo") == "20"


def test_it_is_dark_where_people_want_that(browser: Any, served: Served) -> None:
    with Visit(browser, served, color_scheme="dark") as visit:
        visit.page.goto("/")
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(float, re.findall(r"[\d.]+", paper)[:3])) < 60


@pytest.mark.skipif(AXE is None, reason="no axe-core: npm install --prefix .venv axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readers_of_screens_find_no_barrier(
    browser: Any, served: Served, folder: Path, scheme: str
) -> None:
    assert AXE is not None
    with Visit(browser, served, color_scheme=scheme, bypass_csp=True) as visit:

        def check(where: str) -> None:
            visit.page.evaluate(AXE.read_text(encoding="utf-8"))
            found = visit.page.evaluate("axe.run()")["violations"]
            assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in found] == [], where

        for path in ("/", "/zoo", "/systems", "/llm", "/training?workload=x", "/jobs/none"):
            visit.page.goto(path)
            check(path)
        visit.page.goto("/systems")
        visit.page.get_by_role("table").get_by_role("link").first.click()
        check("a system")
        visit.upload(folder / "conv.onnx")
        check("answers")
        visit.pictures()
        check("pictures")
