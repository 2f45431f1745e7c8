"""A report is one page that needs nothing else; its first sentence is the command's answer."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here
from factories import branching_net, conv_net, embedding_net, mlp, save

from bricks import Bench
from bricks.analysis.latency_survey import SurveyedModel, survey
from bricks.cli.main import run
from bricks.report import page as pages
from bricks.report.latency_page import latency_page
from bricks.report.page import Scale
from bricks.report.picture_data import tracks
from bricks.units.interval import Interval

HOSTILE = "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>"


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
        ("measure", *every[:2], "--threads", 2),
        # It is known on two targets, and measured on the first.
        ("decompose", every[2], "--threads", 2),
    ):
        assert run([*map(str, (*words, *common))]) == 0
    return folder


class Report:
    """A report on the cache of ``folder``: its facts, and its page."""

    def __init__(self, here: Here, folder: Path, *words: object) -> None:
        out = here.cache.parent / "r.html"
        common = ("--out", out, "--cache", folder / "cache")
        done = here.plain("report", *words, "--json", *common)
        assert done.status == 0, done.err
        self.facts = done.json
        self.page = out.read_text(encoding="utf-8")
        self.shown = here.plain("report", *words, *common).out.splitlines()

    @property
    def headline(self) -> str:
        (found,) = re.findall(r"<h1[^>]*>(.*?)</h1>", self.page)
        return html.unescape(found)

    @property
    def titles(self) -> list[set[str]]:
        return [{model["model"] for model in each["models"]} for each in self.facts["targets"]]

    @property
    def settings(self) -> set[tuple[str, int]]:
        return {(t["runtime"]["backend"], t["runtime"]["threads"]) for t in self.facts["targets"]}


def test_the_headline_is_the_answer_of_the_command(here: Here, folder: Path) -> None:
    for words in (("--threads", 1), (folder / "models" / "conv.onnx",)):
        report = Report(here, folder, *words)
        assert report.headline == report.facts["answer"] == report.shown[1]
        assert report.facts["size_bytes"] == len(report.page.encode())
        size = f"{report.facts['size_bytes'] / 1e3:.0f} KB"
        assert report.shown[0].endswith(f", {size}")


def test_many_models_tell_who_is_slow_and_who_is_uncertain(here: Here, folder: Path) -> None:
    report = Report(here, folder, "--threads", 1)
    (target,) = report.facts["targets"]
    latencies = [model["estimate_s"] for model in target["models"]]
    assert len(latencies) == 5 and None not in latencies
    wide = [
        model
        for model in target["models"]
        if (model["high_s"] - model["low_s"]) / 2 > 0.1 * model["estimate_s"]
    ]
    start = "5 models take "
    assert report.headline.startswith(start)
    says = f"{len(wide)} are" if len(wide) > 1 else "1 is" if wide else "none is"
    assert f"; {says} uncertain by more than 10 %" in report.headline
    slowest = max(target["models"], key=lambda model: model["estimate_s"])
    first = re.search(r'<tbody>\s*<tr><th scope="row"><a [^>]*>(.*?)</a>', report.page)
    assert first is not None and html.unescape(first[1]) == slowest["title"]
    assert f"{target['summary']['geomean_ratio']:.3f}" in report.page


def test_one_model_has_its_operators_its_memory_and_what_narrows_its_interval(
    here: Here, folder: Path
) -> None:
    report = Report(here, folder, folder / "models" / "conv.onnx", "--threads", 1)
    (target,) = report.facts["targets"]
    (model,) = target["models"]
    assert report.headline.startswith("conv takes ")
    for operator in model["operators"]:
        assert f'<th scope="row">{operator["operator"]} ' in report.page
    assert sum(part["share"] for part in model["operators"]) == pytest.approx(1)
    assert model["peak_bytes"] > model["weight_bytes"] > 0
    assert ">Memory</h2>" in report.page and "at the peak" in report.page
    assert ">What measuring more would change</h2>" in report.page
    assert re.search(r"<code>bricks (measure|compare) \S*conv.onnx", report.page)
    assert ">–<" not in report.page


@pytest.mark.parametrize(
    ("words", "titles", "settings"),
    [
        (("--threads", 2), [{"branching", "conv", "embedding"}], {("fake", 2)}),
        (("--threads", "1,2", "--runtime", "fake"), None, {("fake", 1), ("fake", 2)}),
        (("--on", "all"), None, {("fake", 1), ("fake", 2)}),
        (("--batch", 1, "--threads", 2), [{"branching", "conv", "embedding"}], {("fake", 2)}),
    ],
)
def test_options_choose_models_and_targets(
    here: Here,
    folder: Path,
    words: tuple[object, ...],
    titles: list[set[str]] | None,
    settings: set[tuple[str, int]],
) -> None:
    report = Report(here, folder, *words)
    assert report.settings == settings
    assert titles in (None, report.titles)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--threads", 7), "fake with 1 or 2 threads"),
        (("--runtime", "onnxruntime"), "fake with 1 or 2 threads"),
        (("--batch", 77), "batch 1"),
        (("--granularity", 2), "granularity executed"),
        (("--shape", "x=1x2"), "name one"),
        (("--on", "nowhere"), "no nowhere among the known systems"),
        (("--threads", "1,many"), "many is no number"),
        (("resnet51",), "resnet51"),
        (("squeezenet",), "squeezenet is not measured: 'bricks measure squeezenet' does"),
    ],
)
def test_a_request_that_matches_nothing_says_in_one_line_what_is_there(
    here: Here, folder: Path, tmp_path: Path, words: tuple[object, ...], says: str
) -> None:
    out = tmp_path / "r.html"
    done = here.plain("report", *words, "--out", out, "--cache", folder / "cache")
    assert done.status in (1, 2)
    assert says in done.err.splitlines()[0]
    assert not out.exists()


def test_what_lacks_measurements_is_named_and_what_has_no_memory_shows_none(
    here: Here, folder: Path, tmp_path: Path
) -> None:
    report = Report(here, folder, "--threads", 2)
    assert "1 model lacks measurements" in report.headline
    assert "embedding lacks measurements" in html.unescape(report.page)
    path = save(mlp(), tmp_path, "mlp.onnx")
    assert here("measure", path, "--granularity", 2, "--threads", 1).status == 0
    assert here("decompose", path, "--granularity", 2, "--threads", 2).status == 0
    done = here.plain(
        "report", "--granularity", 2, "--out", tmp_path / "r.html", "--json", "--cache", here.cache
    )
    assert done.status == 0
    assert [target["runtime"]["threads"] for target in done.json["targets"]] == [1]
    assert len(done.json["unmeasured"]) == 1
    assert "threads: 2; it is left out" in done.complaint
    (model,) = done.json["targets"][0]["models"]
    assert model["peak_bytes"] is None
    assert "Memory</h2>" not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_model_called_script_is_text(here: Here, folder: Path) -> None:
    report = Report(here, folder, "--threads", 1)
    assert HOSTILE.partition(">")[0] + ">window" not in report.page
    assert html.escape(HOSTILE.replace("/", "\u2215"), quote=True)[:20] in report.page
    assert report.page.count("<script") == 1


@pytest.mark.slow
def test_a_hundred_models_are_less_than_half_a_megabyte(tmp_path: Path) -> None:
    """Copies of models of the zoo, each with bricks of its own."""
    names = ("densenet121", "squeezenet", "mobilenet_v2", "resnet50", "inception_v2")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        bench.measure([bench.read(name) for name in names])
        target = bench.workspace.target
        surveyed = survey(bench.workspace, [target], lambda plan: True)
    main = surveyed.main
    copies = [copied(main.models[n % len(names)], f"model{n}") for n in range(128)]
    main = replace(main, models=tuple(copies), costly=main.costly * 128)
    page = latency_page(replace(surveyed, targets=(main,)), version="0", made="today")
    assert page.count("<details") > 128
    assert len(page.encode()) < 500_000


def copied(model: SurveyedModel, title: str) -> SurveyedModel:
    """The same model under another title and digest."""
    return replace(model, title=title, plan=replace(model.plan, digest=title))


def test_data_can_not_end_the_script_that_holds_it() -> None:
    text = pages.in_script({"name": "</script><!--\u2028&"})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"name": "</script><!--\u2028&"}


def test_where_nothing_is_known_nothing_is_written(here: Here, tmp_path: Path) -> None:
    common = ("report", "--out", tmp_path / "r.html")
    done = here(*common)
    assert done.status == 1
    assert "there is no cache" in done.complaint
    assert not here.cache.exists()
    assert here("decompose", save(mlp(), tmp_path, "mlp.onnx")).status == 0
    done = here(*common)
    assert done.status == 1
    assert "'bricks measure'" in done.complaint
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
def test_models_of_one_name_are_distinguished(here: Here, tmp_path: Path) -> None:
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


def test_bars_share_a_scale_that_shows_the_smallest_value() -> None:
    near = Scale.of([Interval(2.0, 1.0, 3.0), Interval(4.0, 4.0, 4.0)])
    assert not near.logarithmic
    assert near.style(Interval(2.0, 1.0, 3.0)) == "--l:25.0%;--w:50.0%;--v:50.0%"
    far = Scale.of([Interval(1.0, 0.9, 1.1), Interval(1000.0, 900.0, 1100.0)])
    assert far.logarithmic
    values = (Interval(v, 0.9 * v, 1.1 * v) for v in (1.0, 10.0, 1000.0))
    styles = " ".join(map(far.style, values))
    positions = [float(percent) for percent in re.findall(r"v:([\d.]+)", styles)]
    assert 0 < positions[0] < positions[1] < positions[2] <= 100
    endless = Scale.of([Interval(1.0, 0.5, float("inf"))])
    assert endless.style(Interval(1.0, 0.5, float("inf"))) == "--l:50.0%;--w:50.0%;--v:100.0%"
