from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import Here, chain
from factories import conv_net, mlp, save
from refusals import refused
from store_examples import measure

from bricks import Bench, System, Target
from bricks.analysis.similarity import Similarity
from bricks.errors import UsageError
from bricks.report.plots import check_picture, draw_similarity

OPERATORS = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Sin")
COST = ("cost_s", "cost_low_s", "cost_high_s")
MARGINAL = ("marginal_s", "marginal_low_s", "marginal_high_s")
COVERED = {
    "bricks", "measured", "failed", "missing", "occurrences", "coverage", "flops_share",
    "bytes_share", "complete", *COST,
}  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [
        save(conv_net(), tmp_path, "conv.onnx"),
        save(conv_net(blocks=5), tmp_path, "deep.onnx"),
        save(mlp(), tmp_path, "mlp.onnx"),
    ]


def test_similarity_as_json(here: Here, models: list[Path]) -> None:
    done = here("zoo", "similarity", *models, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == {"runtime", "granularity", "models", "grid"}
    assert (facts["runtime"]["backend"], facts["granularity"]) == ("fake", "executed")
    assert facts["grid"]["models"] == ["conv", "deep", "mlp"]
    grid = facts["grid"]["similarity"]
    assert [grid[i][i] for i in range(3)] == [1.0, 1.0, 1.0]
    assert grid[0][1] == grid[1][0] == 1.0  # more of the same bricks
    assert grid[0][2] == 0.0
    for row in facts["models"]:
        assert row.keys() == {"model", "bricks", "shared", "nearest", "error"}
    assert facts["models"][0]["nearest"] == [{"model": "deep", "similarity": 1.0}]
    assert facts["models"][2]["nearest"] == []


def test_few_models_are_a_grid_and_many_have_their_nearest(here: Here, tmp_path: Path) -> None:
    few = [save(chain("Relu", name), tmp_path, f"{name}.onnx") for name in OPERATORS[:3]]
    shown = here("zoo", "similarity", *few).out
    assert shown.splitlines()[0].split() == ["model", "bricks", "1", "2", "3"]
    assert shown.splitlines()[1].split() == ["1", "Abs", "2", "·", "0.33", "0.33"]
    shown = here("zoo", "similarity", *few * 5).out
    assert shown.splitlines()[0].split() == ["model", "bricks", "shared", "most", "similar"]
    assert shown.splitlines()[1].split()[:3] == ["Abs", "2", "100"]
    assert shown.splitlines()[1].split("%")[1].strip() == "Abs 1.00, Abs 1.00, Abs 1.00"


@pytest.mark.parametrize("command", ["similarity", "coverage"])
def test_without_a_name_it_is_the_whole_zoo(
    here: Here, models: list[Path], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = models[0].parent
    (folder / "manifest.json").write_text(
        '[{"name": "mine", "version": 1, "task": "t", "family": "f", "framework": "w",'
        ' "source": "s", "inputs": {}, "parameters": 1, "flops": 1, "recipe": "r",'
        ' "file": "mlp.onnx", "sha256": ""}]'
    )
    monkeypatch.setenv("BRICKS_ZOO", str(folder))
    assert [row["model"] for row in here("zoo", command, "--json").json["models"]] == ["mine"]


@pytest.mark.parametrize("command", ["similarity", "coverage"])
def test_a_model_that_is_not_there_stops_no_other(
    here: Here, models: list[Path], command: str
) -> None:
    done = here("zoo", command, "none.onnx", models[0], "--json")
    assert done.status == 1
    assert done.complaint == "no file or folder is called 'none.onnx': check the path"
    missing, there = done.json["models"]
    assert missing.keys() == there.keys()
    assert (missing["error"], there["error"]) == (done.complaint, None)
    if command == "similarity":
        assert done.json["grid"] == {"models": ["conv"], "similarity": [[1.0]]}
    else:
        assert done.json["union"]["models"] == 1


def figures(facts: dict[str, Any]) -> tuple[float, int, bool]:
    return facts["coverage"], len(facts["missing"]), facts["complete"]


def test_coverage_as_json_from_nothing_to_all(
    here: Here, models: list[Path], tmp_path: Path
) -> None:
    words = ("zoo", "coverage", *models, "--json", "--threads", 1)
    facts = here(*words).json
    assert facts.keys() == {
        "system", "runtime", "granularity", "models", "union", "cost_model",
    }  # fmt: skip
    for row in facts["models"]:
        assert row.keys() == {"model", "error", "new", *COVERED, *MARGINAL}
        assert figures(row) == (0.0, row["bricks"], False)
        assert [row[name] for name in (*COST, *MARGINAL)] == [None] * 6
    assert facts["union"].keys() == {"models", *COVERED}
    assert facts["cost_model"] is None

    # What costs are learned from may be anything that was measured.
    other = save(chain(*OPERATORS), tmp_path, "other.onnx")
    assert here("measure", models[0], other, "--threads", 1).status == 0
    facts = here(*words).json
    conv, deep, dense = facts["models"]
    assert figures(conv) == figures(deep) == (1.0, 0, True)
    assert conv["marginal_s"] == conv["cost_s"] == 0.0
    assert figures(dense)[0] < 1
    assert 0 < dense["marginal_low_s"] <= dense["marginal_s"] <= dense["marginal_high_s"]
    assert dense["new"] == facts["union"]["missing"] == dense["missing"]
    assert facts["union"]["cost_s"] == pytest.approx(dense["marginal_s"])
    assert facts["cost_model"].keys() == {"bricks", "median_abs_error"}

    assert here("measure", *models, "--threads", 1).status == 0
    facts = here(*words).json
    assert figures(facts["union"]) == (1.0, 0, True)


def test_coverage_in_words(here: Here, models: list[Path], tmp_path: Path) -> None:
    shown = here("zoo", "coverage", models[0]).out
    assert "fewer than 10 bricks are measured" in shown
    other = save(chain(*OPERATORS), tmp_path, "other.onnx")
    assert here("measure", other).status == 0
    shown = here("zoo", "coverage", other, models[0]).out
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["other", "conv"]
    assert "possible" in shown
    assert "incomplete" in shown
    assert "Measuring all that lacks takes" in shown


def test_coverage_of_another_system_is_by_what_was_measured_there(
    here: Here, models: list[Path]
) -> None:
    with Bench(here.cache, runtime="fake", threads=1) as bench:
        conv, dense = (bench.read(path) for path in (models[0], models[2]))
        there = Target(System("lab", {"cpu": "other"}, {}), bench.workspace.runtime)
        bench.store.systems.save_target(there)
        bench.store.plans.save(bench.decompose(conv), there.key)
        bench.decompose(dense)
        measure(bench.store, there, bench.decompose(conv).plan.keys[:1])
    words = ("zoo", "coverage", models[0], models[2], "--threads", 1, "--json")
    here_facts, done = here(*words).json, here(*words, "--on", "lab")
    assert here_facts["union"]["measured"] == 0
    assert done.status == 1
    known, unknown = done.json["models"]
    assert (known["measured"], known["complete"]) == (1, False)
    assert done.json["system"]["name"] == "lab"
    assert done.complaint == unknown["error"]
    assert "mlp was never decomposed on lab" in done.complaint


def test_a_system_that_nobody_knows_is_one_line(here: Here, models: list[Path]) -> None:
    done = here("zoo", "coverage", models[0], "--on", "nowhere")
    assert done.status == 2
    assert done.complaint.startswith("no nowhere among the known systems")


def test_pictures_are_what_their_names_say(here: Here, models: list[Path], tmp_path: Path) -> None:
    drawn, pixels = tmp_path / "grid.svg", tmp_path / "grid.PNG"
    for path in (drawn, pixels):
        assert here("zoo", "similarity", *models, "--out", path).status == 0
    texts = {
        each.text for each in ElementTree.parse(drawn).iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"conv", "deep", "mlp", "1.00"} <= texts
    assert pixels.read_bytes().startswith(b"\x89PNG\r\n")
    first = drawn.read_bytes()
    assert here("zoo", "similarity", *models, "--out", drawn).status == 0
    assert drawn.read_bytes() == first, "the same grid is the same file"


def test_what_models_are_called_is_no_formula_and_no_markup(tmp_path: Path) -> None:
    names = ("$\\frac{$", "<b>&amp;", "tab\there")
    nothing = tuple(tuple(float(i == j) for j in range(3)) for i in range(3))
    path = tmp_path / "grid.svg"
    grid = Similarity(names, (1, 1, 1), (0, 0, 0), nothing)
    draw_similarity(grid, path, title="t", kinds={names[0]: "a", names[1]: "b"})
    texts = [each.text for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert "<b>&amp;" in texts
    assert "tab here" in texts


@pytest.mark.parametrize("count", [1, 120])
def test_grids_of_any_size_are_drawn(tmp_path: Path, count: int) -> None:
    shares = tuple(tuple(float(i // 9 == j // 9) for j in range(count)) for i in range(count))
    names = tuple(f"model_{i}" for i in range(count))
    path = tmp_path / "grid.svg"
    draw_similarity(Similarity(names, (1,) * count, (1,) * count, shares), path, title="t")
    texts = [each.text for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert all(texts.count(name) == 2 for name in names)


def test_without_a_model_there_is_no_picture(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "grid.svg"
    done = here("zoo", "similarity", "none.onnx", "--out", path)
    assert (done.status, done.out) == (1, "")
    assert done.complaint == "no file or folder is called 'none.onnx': check the path"
    assert not path.exists()
    with refused(UsageError, path):
        draw_similarity(Similarity((), (), (), ()), path, title="t")


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("grid.gif", 2, "grid.gif: a picture's name ends in .svg or .png"),
        ("grid", 2, "grid: a picture's name ends in .svg or .png"),
        ("none/grid.svg", 2, "there is no folder"),
        ("folder.svg", 1, "cannot be written (Is a directory): give another name"),
    ],
)
def test_a_picture_that_cannot_be_is_one_line(
    here: Here, models: list[Path], tmp_path: Path, name: str, status: int, text: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    done = here("zoo", "similarity", models[2], "--out", tmp_path / name)
    assert done.status == status
    assert text in done.complaint


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refused(UsageError, "matplotlib", "pip install 'onnx-bricks[plots]'"):
        check_picture(tmp_path / "grid.svg")
