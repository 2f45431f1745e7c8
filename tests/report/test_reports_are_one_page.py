"""A report needs nothing else: it is looked at in a real browser, without a network."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import branching_net, conv_net, embedding_net, mlp, save

from bricks import Bench
from bricks.analysis.cache_summary import CacheSummary, summarise_cache
from bricks.analysis.similarity import similarity
from bricks.cli.main import run
from bricks.closing import Closing
from bricks.report import page as pages
from bricks.report.tables import size
from bricks.report.tracks import tracks

playwright = pytest.importorskip("playwright.sync_api")

HOSTILE = "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def in_a_browser(test: Any) -> Any:
    """Browsers take seconds: only `make test-all` starts one."""
    reason = "no Chromium to look at pages with: apt-get install chromium"
    return pytest.mark.slow(pytest.mark.skipif(CHROMIUM is None, reason=reason)(test))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, compared with one thread and partly with two, and one that lacks a measurement."""
    folder = tmp_path_factory.mktemp("report")
    models = folder / "models"
    models.mkdir()
    (models / "hostile").mkdir()
    save(conv_net(), models, "conv.onnx")
    save(mlp(), models, "mlp.onnx")
    save(branching_net(), models, "branching.onnx")
    save(embedding_net(), models, "embedding.onnx")
    hostile = models / "hostile" / (HOSTILE.replace("/", "\u2215") + ".onnx")
    save(mlp(widths=(8, 64, 10)), hostile.parent, hostile.name)
    common = ("--runtime", "fake", "--cache", folder / "cache")
    every = [*sorted(models.glob("*.onnx")), hostile]
    for words in (
        ("compare", *every, "--threads", 1),
        ("explain", every[0], "--threads", 1),
        ("measure", *every[:2], "--threads", 2),
        # It is known on two targets, and measured on the first.
        ("decompose", every[2], "--threads", 2),
        ("report", "--threads", 1, "--out", folder / "report.html"),
    ):
        assert run([*map(str, (*words, *common))]) == 0
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Looked(Closing):
    """A page, and all that it complained of."""

    def __init__(self, browser: Any, path: Path, hash_: str = "", **context: Any) -> None:
        self._context = browser.new_context(offline=True, **context)
        self.page = self._context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{path.as_uri()}{hash_}")
        self.page.wait_for_function(
            "[...document.querySelectorAll('section > figure .chart')]"
            ".every(chart => chart.querySelector('svg'))"
        )

    def close(self) -> None:
        self._context.close()

    def opened(self, number: int) -> Any:
        """A model's section, opened and drawn."""
        details = self.page.locator("#t0 details.model").nth(number)
        details.locator("summary").click()
        self.page.wait_for_function(
            "n => [...document.querySelectorAll('#t0 details.model')[n]"
            ".querySelectorAll('.chart, .graph')].every(box => box.querySelector('svg'))",
            arg=number,
        )
        return details


@pytest.fixture
def looked(browser: Any, folder: Path) -> Iterator[Looked]:
    with Looked(browser, folder / "report.html") as looked:
        yield looked


@in_a_browser
def test_a_page_asks_for_nothing_and_complains_of_nothing(looked: Looked, folder: Path) -> None:
    for number in range(5):
        looked.opened(number)
    assert looked.complaints == []
    assert looked.asked == [(folder / "report.html").as_uri()]


@in_a_browser
def test_all_pictures_show_what_they_are_of(looked: Looked) -> None:
    page = looked.page
    facts = json.loads(page.locator("#data").text_content())
    first = facts["targets"][0]
    assert len(first["models"]) == 5
    normalised = page.locator("#t0 [data-chart=normalised] .mark-symbol.role-mark path")
    assert normalised.count() == 5
    assert page.locator("#t0 [data-chart=against] .mark-symbol.role-mark path").count() == 5
    similar = page.locator("#t0 [data-chart=similarity] .mark-rect.role-mark path")
    assert similar.count() == len(first["similarity"]["shared"])
    # What was never run as a whole has estimates alone.
    assert page.locator("#t1 [data-chart=normalised]").count() == 0
    assert page.locator("#t1 [data-chart=estimates] .mark-symbol.role-mark path").count() == 2
    # And two models are known on both targets.
    assert page.locator("#systems [data-chart=systems] .mark-symbol.role-mark path").count() == 4


@in_a_browser
def test_a_models_section_shows_its_graph_and_where_its_time_goes(looked: Looked) -> None:
    facts = json.loads(looked.page.locator("#data").text_content())
    model = facts["targets"][0]["models"][0]
    details = looked.opened(0)
    labels = details.locator(".graph svg > g > text")
    assert labels.count() == len(model["places"])
    edges = sum(len(needed) for _, _, needed in model["places"])
    assert details.locator(".graph path").count() == edges
    rows = details.locator("[data-chart=timeline] .mark-rect.role-mark path")
    assert rows.count() == len(model["places"])
    operators = {facts["targets"][0]["bricks"][part[0]][1] for part in model["parts"]}
    bars = details.locator("[data-chart=breakdown] .mark-rect.role-mark path")
    assert bars.count() == len(operators)
    assert details.locator("[data-chart=roofline] .mark-line").count() == 1
    assert "Lower bound" in details.text_content()


@in_a_browser
def test_a_model_called_script_is_shown_and_not_run(looked: Looked) -> None:
    shown = HOSTILE.replace("/", "\u2215")
    page = looked.page
    links = page.locator("#t0 table th a").all_text_contents()
    assert any(shown in text for text in links)
    for number in range(5):
        looked.opened(number)
    page.locator("#t0 [data-chart=normalised] .mark-symbol.role-mark path").first.hover()
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3


@in_a_browser
def test_tables_are_sorted_and_searched(looked: Looked) -> None:
    page = looked.page
    table = page.locator("#t0 table.searchable").first

    def column(number: int) -> list[str]:
        return table.locator(f"tbody tr:visible > :nth-child({number})").all_text_contents()

    names = column(1)
    table.locator("thead button", has_text=re.compile("^bricks$")).click()
    counts = list(map(int, column(4)))
    assert counts == sorted(counts, reverse=True)
    table.locator("thead button", has_text=re.compile("^bricks$")).click()
    assert list(map(int, column(4))) == sorted(counts)
    table.locator("thead button", has_text="model").click()
    assert column(1) == sorted(names, key=str.lower)
    page.locator("#t0 input[type=search]").first.fill("conv")
    assert column(1) == ["conv"]
    page.locator("#t0 input[type=search]").first.fill("no such model")
    assert column(1) == []


@in_a_browser
def test_a_link_opens_the_model_that_it_names(browser: Any, folder: Path) -> None:
    with Looked(browser, folder / "report.html", "#t0-m2") as looked:
        assert looked.page.locator("#t0-m2").evaluate("details => details.open")
        assert looked.page.locator("#t0 details[open]").count() == 1


@in_a_browser
@pytest.mark.parametrize("width", [360, 820, 1280])
def test_no_width_makes_the_page_scroll_sideways(browser: Any, folder: Path, width: int) -> None:
    size = {"width": width, "height": 800}
    with Looked(browser, folder / "report.html", viewport=size) as looked:
        looked.opened(0)
        assert looked.page.evaluate("document.documentElement.scrollWidth") <= width


@in_a_browser
def test_it_is_dark_where_people_want_that_and_light_on_paper(browser: Any, folder: Path) -> None:
    def lightness(looked: Looked, of: str, style: str) -> float:
        found = looked.page.locator(of).first.evaluate(
            "(element, style) => getComputedStyle(element)[style]", style
        )
        return sum(map(float, re.findall(r"[\d.]+", found)[:3])) / 3 / 255

    label = "#t0 [data-chart=normalised] .role-axis-label text"
    with Looked(browser, folder / "report.html", color_scheme="dark") as looked:
        assert lightness(looked, "body", "backgroundColor") < 0.2
        assert lightness(looked, label, "fill") > 0.8
        looked.page.emulate_media(media="print")
        assert lightness(looked, "body", "backgroundColor") == 1
        assert lightness(looked, label, "fill") < 0.2
        assert not looked.page.locator("nav").is_visible()
        assert looked.page.pdf().startswith(b"%PDF")


def reported(here: Here, folder: Path, page: Path, *models: Path) -> tuple[Any, str]:
    """The facts of a report on the cache of ``folder``, and its page."""
    words = ("report", *models, "--threads", 1, "--out", page, "--json", "--runtime", "fake")
    done = here.plain(*words, "--cache", folder / "cache")
    assert done.status == 0, done.err
    return done.json, page.read_text(encoding="utf-8")


def test_facts_for_programs_are_those_of_the_page(here: Here, folder: Path, tmp_path: Path) -> None:
    facts, written = reported(here, folder, tmp_path / "r.html")
    (data,) = re.findall(r'id="data">(.*?)</script>', written, re.DOTALL)
    assert [len(target["models"]) for target in json.loads(data)["targets"]] == [5, 3]
    first, second = facts["targets"]
    assert [len(first["models"]), len(second["models"])] == [5, 3]
    assert first["summary"]["models"] == 5
    assert first["peaks"]["flops_per_s"] > 0
    assert sum(brick["share"] for brick in first["costly"]) == pytest.approx(1)
    incomplete = [model for model in second["models"] if model["estimate_s"] is None]
    assert [model["model"] for model in incomplete] == ["embedding"]
    # What lacks is named.
    assert "incomplete" in written
    assert "not measured on this target" in written
    assert "no model was run as a whole" in written
    assert "The peaks of this machine are not measured" in written


def test_models_may_be_named_and_their_peak_memory_is_shown_with_its_parts(
    here: Here, folder: Path, tmp_path: Path
) -> None:
    facts, written = reported(here, folder, tmp_path / "r.html", folder / "models" / "conv.onnx")
    assert ">peak memory</th>" in written
    assert len(facts["targets"]) == 2
    for target in facts["targets"]:
        (model,) = target["models"]
        assert model["model"] == "conv"
        assert model["peak_bytes"] > model["weight_bytes"] > 0
        shown = size(model["peak_bytes"])
        assert f"Peak memory: {shown} (weights " in written
        assert f">{shown}</td>" in written


def test_what_is_not_measured_is_left_out_and_why_there_is_no_peak_memory_is_said(
    here: Here, tmp_path: Path
) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("measure", path, "--granularity", 2, "--threads", 1).status == 0
    assert here("decompose", path, "--granularity", 2, "--threads", 2).status == 0
    words = ("--granularity", 2, "--threads", 2, "--out", tmp_path / "r.html", "--json")
    done = here("report", *words)
    assert done.status == 0
    assert [target["runtime"]["threads"] for target in done.json["targets"]] == [1]
    assert len(done.json["unmeasured"]) == 1
    assert "threads: 2; it is left out" in done.complaint
    (model,) = done.json["targets"][0]["models"]
    assert model["peak_bytes"] is None
    written = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "No peak memory: memory follows from the graph that is executed" in written


def many(folder: Path, models: int) -> CacheSummary:
    """So many models, each with bricks of its own, as large as those of the zoo are on average."""
    names = ("densenet121", "squeezenet", "mobilenet_v2", "resnet50", "inception_v2")
    with Bench(folder / "cache", runtime="fake", threads=1) as bench:
        bench.measure([bench.read(name) for name in names])
        (whole,) = summarise_cache(bench.workspace).targets
    views = []
    for number in range(models):
        view = whole.models[number % len(names)]
        explanation = view.explanation
        parts = tuple(replace(p, brick=f"{p.brick}{number}") for p in explanation.parts)
        occurrences = tuple(replace(o, brick=f"{o.brick}{number}") for o in view.plan.occurrences)
        plan = replace(view.plan, model=f"model{number}", occurrences=occurrences)
        views.append(
            replace(
                view,
                title=plan.model,
                plan=plan,
                explanation=replace(explanation, parts=parts),
            )
        )
    everything = replace(
        whole, models=tuple(views), similarity=similarity([view.plan for view in views])
    )
    return CacheSummary("executed", (everything,))


@pytest.mark.slow
def test_a_hundred_models_are_less_than_five_megabytes(tmp_path: Path) -> None:
    found = many(tmp_path, 100)
    places = sum(len(view.plan.occurrences) for view in found.targets[0].models)
    assert places > 20_000
    written = pages.render(found, version="0", made="today")
    assert len(written.encode()) < 5_000_000


def test_data_can_not_end_the_script_that_holds_it() -> None:
    text = pages.in_script({"name": "</script><!--\u2028&"})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"name": "</script><!--\u2028&"}


def test_where_nothing_is_known_nothing_is_written(here: Here, tmp_path: Path) -> None:
    told = here("report", "--out", tmp_path / "r.html")
    assert told.status == 1
    assert "there is no cache" in told.complaint
    assert not here.cache.exists()
    assert here("decompose", save(mlp(), tmp_path, "mlp.onnx")).status == 0
    told = here("report", "--out", tmp_path / "r.html")
    assert told.status == 1
    assert "knows nothing of such models" in told.complaint
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_models_of_one_name_are_told_apart(here: Here, tmp_path: Path) -> None:
    """By their inputs, or where these are equal, too, by their digests."""
    for number, widths in enumerate(((8, 16), (16, 8), (16, 4))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert here("measure", save(mlp(widths=widths), folder, "mlp.onnx")).status == 0
    facts = here("report", "--out", tmp_path / "r.html", "--json").json["targets"][0]["models"]
    titles = sorted(model["title"] for model in facts)
    assert [title.startswith("mlp (float[1,") for title in titles] == [True] * 3
    assert [" (m1-" in title for title in titles] == [True, True, False]
    assert len(set(titles)) == 3


@pytest.mark.slow
def test_a_page_that_cannot_be_written_leaves_what_was_there(
    here: Here, folder: Path, tmp_path: Path
) -> None:
    common = ("--cache", folder / "cache", "--runtime", "fake")
    done = here.plain("report", "--out", tmp_path / "nowhere" / "r.html", *common)
    assert done.status == 2 and "make it first" in done.complaint
    (tmp_path / "r.html").mkdir()
    done = here.plain("report", "--out", tmp_path / "r.html", *common)
    assert done.status == 1 and "give another --out" in done.complaint
    assert list(tmp_path.iterdir()) == [tmp_path / "r.html"]


def test_graphs_are_drawn_in_as_few_tracks_as_they_need() -> None:
    for producers, expected in (
        ([[], [0], [1]], [0, 0, 0]),
        ([[], [0], [0], [1, 2]], [0, 1, 0, 0]),
        ([[], [0], [1], [0, 2]], [0, 1, 1, 0]),
        ([[], []], [0, 0]),
    ):
        assert tracks(producers) == expected, producers
