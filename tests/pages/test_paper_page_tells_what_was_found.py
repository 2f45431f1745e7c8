from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from evaluations import evaluated, row
from refusals import refused

from benchmarks.evaluation import figures, page, published, results
from benchmarks.evaluation.layers import Layers, jaccard
from benchmarks.evaluation.results import EXECUTED, Failed, Results, ResultsError

FIGURES_BYTES = 300_000


def written(found: Results, folder: Path, *, drawn: bool = False) -> str:
    folder.mkdir(exist_ok=True)
    shown = figures.draw(found, folder / "figures") if drawn else {}
    page.write(found, shown, folder / "paper.md")
    return (folder / "paper.md").read_text(encoding="utf-8")


def test_results_come_out_of_their_file_as_they_went_in(tmp_path: Path) -> None:
    found = evaluated()
    results.write(found, tmp_path / "paper.json")
    again = results.read(tmp_path / "paper.json")
    assert again.to_json() == found.to_json()
    assert again.ratios("mxnet-unfused", 1) == pytest.approx(found.ratios("mxnet-unfused", 1))
    assert (again.layers, again.models) == (found.layers, found.models)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', '{"format": 99}'])
def test_files_that_are_no_results_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "paper.json"
    path.write_text(text)
    with refused(ResultsError, path):
        results.read(path)
    with refused(ResultsError, tmp_path / "nothing.json"):
        results.read(tmp_path / "nothing.json")


def test_figures_follow_from_the_ratios() -> None:
    found = evaluated(4)
    assert found.geomean("mxnet-unfused", 1) == pytest.approx(1.0)
    assert found.mean_error("mxnet-unfused", 1) == pytest.approx((0.2 + 0.25) / 2)
    assert found.within("mxnet-unfused", 1, 0.2) == 2
    assert found.within("mxnet-unfused", EXECUTED, 0.05) == 4
    assert found.speedup("mxnet-unfused", 1) == pytest.approx(4.4)
    assert found.geomean("fake", 1) is None


def test_the_best_granularity_is_that_of_the_mean_nearest_to_one() -> None:
    found = evaluated(3)
    rows = {**found.rows, ("gluon_model0_of_fifty", "mxnet-unfused", "2"): row(0.81)}
    assert replace(found, rows=rows).best("mxnet-unfused") == 2
    assert found.best("mxnet-unfused") == 1  # of equals the smallest
    assert found.best("fake") is None


def test_layers_repeat_within_and_across_models() -> None:
    layers = Layers(("Conv", "Relu", "Flatten"), {"a": (0, 1, 0, 1), "b": (0, 2)})
    assert (layers.total, layers.unique, layers.shape_only) == (6, 3, 1)
    assert layers.unique_share("a") == 0.5
    assert layers.repeated_types(["a"]) == {"Conv": 1, "Relu": 1}
    assert layers.repeated_types(["a", "b"]) == {"Conv": 2, "Relu": 1}
    assert jaccard({0, 1}, {0, 2}) == pytest.approx(1 / 3)
    assert jaccard(set(), set()) == 1


def test_the_page_sets_what_was_found_beside_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "TRAINED", {"gluon_model1_of_fifty": ("one", "another")})
    found = evaluated(4, ("mxnet-unfused", "onnxruntime", "mxnet"))
    text = written(found, tmp_path, drawn=True)
    assert "| layers | 10,815 | 28 |" in text
    assert "| unique share | 14.1 % | 17.9 % |" in text
    assert "| unique share, trained models of the paper's list | 14.1 % | 25.0 % |" in text
    assert "2 are gluon_model1_of_fifty, which take 100 % of the" in text
    ours = "| speed-up, G = 1, trained models of the paper's list | 4.38 (c5.xlarge) "
    assert f"{ours}| 8.80 | 8.80 | 8.80 |" in text
    assert "| speed-up, G = 1, every network here once | – | 4.40 | 4.40 | 4.40 |" in text
    assert "(not measured)" not in text
    tables = page.tables(found)
    assert "| gluon_model1_of_fifty | 2 | one; another |  |" in tables
    assert "| gluon_model1_of_fifty | 10 ms | 1.250 | 1.250 | 1.250 | 1.000 |" in tables
    assert "Note" not in text
    shown = re.findall(r"\]\((figures/\S+\.svg)\)", text)
    assert len(shown) == len(figures.FIGURES)
    assert all((tmp_path / name).is_file() for name in shown)


def test_the_page_sums_up_by_task_and_names_the_largest_errors(tmp_path: Path) -> None:
    found = evaluated(4, ("mxnet-unfused", "onnxruntime"))
    rows = dict(found.rows)
    for i, ratio in enumerate((0.9, 1.3, 1.0, 1.05)):
        rows[found.models[i].name, "onnxruntime", EXECUTED] = row(ratio)
    found = replace(found, rows=rows)
    text = written(found, tmp_path)
    assert "| task 1 | 1 | 1.0 … 1.0 M | 6 | 3 | 50.0 % | 0.0 % | 30.0 % |" in text
    table = text[text.index("## Largest errors") :]
    assert re.findall(r"\d_of_fifty \| (\S+) \|$", table, re.MULTILINE) == [
        "1.300", "0.900", "1.050", "1.000",
    ]  # fmt: skip
    assert page.worst_table(found, most=1).count("_of_fifty") == 2


def test_a_runtime_that_was_run_at_some_granularities_alone_has_rows_of_these(
    tmp_path: Path,
) -> None:
    found = evaluated(2)
    rows = {k: v for k, v in found.rows.items() if k[1] == "onnxruntime" or k[2] == EXECUTED}
    tables = page.tables(replace(found, rows=rows))
    assert "| model | measured | 1 | 2 | 10 | executed |" in tables
    assert "| model | measured | executed |" in tables
    text = written(replace(found, rows=rows), tmp_path)
    assert "| geometric mean of estimate / measured, G = 1 | 0.918 (c5.2xlarge); " in text
    assert "over systems | – | 1.000 |" in text


def test_what_is_not_as_it_should_be_is_said_first(tmp_path: Path) -> None:
    found = evaluated()
    (first, *_) = found.rows
    rows = {**found.rows, first: Failed("gluon_model0_of_fifty: it crashed the process")}
    rows = {key: row for key, row in rows.items() if key[0] != found.models[2].name}
    failed = replace(found, rows=rows, quick=True)
    text = written(failed, tmp_path)
    head = text[: text.index("DLBricks")]
    assert "quick run" in head
    assert "1 of 3 models were not reached" in head
    assert "1 of 16 comparisons could not be made" in head
    assert "- gluon_model0_of_fifty, MXNet, G = 1: it crashed the process" in text
    assert "| gluon_model0_of_fifty | 10 ms | failed | 0.800 |" in page.tables(failed)


def test_what_was_not_measured_is_said_where_it_would_stand(tmp_path: Path) -> None:
    text = written(evaluated(2, runtimes=("onnxruntime",)), tmp_path)
    assert "geometric mean of (not measured)" in text
    nothing = replace(evaluated(2), rows={}, totals={}, trained={}, layers=Layers())
    text = written(nothing, tmp_path / "nothing", drawn=True)
    assert "*No figure: not measured.*" in text
    assert "2 of 2 models were not reached" in text


def test_a_template_that_names_no_fact_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "paper.in.md"
    monkeypatch.setattr(page, "TEMPLATE", template)
    template.write_text("{mxnet-unfused_geomean_3} {mxnet-unfused_geomean_1}")
    assert written(evaluated(2), tmp_path) == "(not measured) 1.000"
    for name in ("geomean", "mxnet-unfused_geomean", "mxnet-unfused_geomean_executde"):
        template.write_text(f"{{{name}}}")
        with refused(ResultsError, name):
            written(evaluated(2), tmp_path)


def test_the_same_results_make_the_same_bytes(tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    for folder in (once, again):
        written(evaluated(2), folder, drawn=True)
    files = sorted(p.relative_to(once) for p in once.rglob("*") if p.is_file())
    assert len(files) == 1 + len(figures.FIGURES)
    assert [(once / f).read_bytes() for f in files] == [(again / f).read_bytes() for f in files]


@pytest.mark.slow
def test_figures_of_fifty_models_stay_small(tmp_path: Path) -> None:
    drawn = figures.draw(evaluated(50), tmp_path)
    assert sum(path.stat().st_size for path in drawn.values()) < FIGURES_BYTES
    names = drawn["models"].read_text(encoding="utf-8")
    assert all(f">model{i}_of_fifty<" in names for i in range(50))
